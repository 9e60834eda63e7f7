// What hcad sees of the way to the fabric, whatever it is (shm, udp). Packets and probes go out,
// deliveries, injected events and answers come in, emulated time is read. Called by hcad's single
// thread; nothing here blocks, sleeps or keeps time: host time is handed in.
//
//   loop:  attach.begin_turn(host_ns)                what time it is
//          attach.receive(...), injected, answers    what the fabric has for us
//          acquire + fill + send                     what we have for the fabric
//          attach.flush()                            publish; wakes fabricd only if it sleeps
//          attach.service(host_ns)                   connect, reconnect, heartbeat
//          nothing to do?  if (attach.prepare_sleep()) { epoll on attach.fd(); }
//                          attach.end_sleep(readable);
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "emu/base/units.h"
#include "emu/wire/channel.h"
#include "emu/wire/message.h"

namespace hca {

// What the fabric tells a node when it attaches; constant during a session.
struct FabricInfo {
  emu::NodeId node = 0;
  emu::CycleTime cycle_time;
  std::uint32_t packet_slots = 0;  // packet buffers that this node may have in use at once
};

enum class AttachState : std::uint8_t {
  down,      // not attached: fabric is away; service() tries again
  attached,  // packets flow
};

// A free packet slot of this node. Fill bytes[0, kPacketBytesMax), then send() its index.
struct TxBuffer {
  std::uint16_t buffer = 0;
  std::uint8_t* bytes = nullptr;
};

// A delivered packet. `bytes` lie in memory that the sending process can still write: read each
// byte once, check what was read. Valid until release(buffer), or until the next session begins.
struct Received {
  emu::RxDesc desc;
  const std::uint8_t* bytes = nullptr;
  std::span<const std::uint8_t> lent;  // the payload, if it is elsewhere (lend())
};

class Attachment {
 public:
  virtual ~Attachment() = default;

  // Host time (a monotonic clock) of all that follows until it is told again: frames are stamped
  // with it when they come and go. Attachments without frames ignore it.
  virtual void begin_turn(std::uint64_t /*host_ns*/) {}

  // Connects, notices a lost fabric, reconnects. Call it every loop while down (it limits its own
  // attempts by `host_ns`, the same clock) and at least every 10 ms while attached.
  virtual AttachState service(std::uint64_t host_ns) = 0;
  virtual AttachState state() const = 0;
  // Why the last attempt failed or the session ended; empty when attached.
  virtual const std::string& reason() const = 0;

  // Down, and the fabric says why: this node's link is out of service. On the fabric's own host
  // now_cycle() goes on, so that what waits for an answer can see that none comes.
  virtual bool link_down() const = 0;

  // Raised by one at each successful attach (0: never attached). All buffers, injected events and
  // answers belong to the session in which they were got: when this number changes, forget them
  // all, acquired and received ones too, without send() or release(). Memory behind `bytes` of an
  // earlier session stays mapped until the service() call that begins the next one.
  virtual std::uint64_t session() const = 0;
  virtual const FabricInfo& info() const = 0;

  // Emulated time, cycles. Stands still while the fabric is away, never runs backwards.
  virtual emu::Cycle now_cycle() const = 0;

  // Towards the fabric. acquire() is empty when all slots are in use or the state is down. Every
  // acquired slot is sent once or abandoned once. send() copies the descriptors and returns how
  // many it took (all, unless down); probe and release packets carry a ProbeBody as their bytes.
  virtual std::optional<TxBuffer> acquire() = 0;
  virtual std::size_t acquirable() const = 0;
  // The same for a train (emu/wire/message.h): bytes[0, kTrainBufferBytes). Empty also where the
  // fabric takes none.
  virtual std::optional<TxBuffer> acquire_train() { return std::nullopt; }
  virtual void abandon(std::uint16_t buffer) = 0;
  // The payload of an acquired train may stay where it is, to be read there by its receiver,
  // instead of going to `home` in the buffer; false: copy it there. It must not change until the
  // receiver has said that it has it, or bring_home() has copied all that may still be read.
  virtual bool lend(std::uint16_t, std::span<const std::uint8_t>, std::uint8_t*) { return false; }
  virtual void bring_home() {}
  virtual std::size_t send(std::span<const emu::TxDesc> descriptors) = 0;

  // False: none of the three below has anything. Attached, true where only a look can tell.
  virtual bool has_incoming() { return state() == AttachState::attached; }

  // From the fabric: each fills from the front of `out` and returns the count. Every received
  // buffer goes back by release(), in any order, soon: the sender's slots are finite.
  virtual std::size_t receive(std::span<Received> out) = 0;
  virtual void release(std::uint32_t buffer) = 0;
  virtual std::size_t injected(std::span<emu::Injected> out) = 0;
  virtual std::size_t answers(std::span<emu::Answer> out) = 0;

  // This node has taken everything delivered by `cycle` and seen to every timer and launch due by
  // then; before sleeping: the cycle at which it looks again by itself (kNever: when woken).
  // Emulated time does not run far ahead of it. Attachments that cannot say so ignore it.
  virtual void served(emu::Cycle) {}

  // Publishes what send() and release() gathered. Wakes fabricd only if it said that it sleeps.
  virtual void flush() = 0;

  // What the session below counted; all zero where packets need no frames (shm).
  virtual emu::ChannelCounters frames() const { return {}; }

  // Waiting. prepare_sleep() says that this node sleeps and looks once more: false means that
  // something is there, do not sleep. Only between a true and end_sleep() does the fabric make
  // fd() readable for packets. A nap with a short timeout and without prepare_sleep() costs the
  // fabric nothing and is right under load. fd() (an epoll descriptor, constant for the life of
  // the object) is also readable when the session's control channel needs service().
  virtual bool prepare_sleep() = 0;
  // `readable`: fd() was when the wait ended. True: service() has something to do now.
  virtual bool end_sleep(bool readable) = 0;
  virtual int fd() const = 0;
};

}  // namespace hca
