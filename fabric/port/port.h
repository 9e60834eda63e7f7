// What fabricd's loop sees of any way to attach (shm, udp, ethdev): packets in, deliveries and
// events out, nodes that come and go. A port serves any number of nodes. One thread calls it; it
// never blocks and keeps no time.
//
//   loop:  port.begin_turn(host_ns)       what time it is
//          port.receive(now, inbox)       bursts: inbox.packets enter the wire halves
//          port.deliver / injected / answer ...
//          port.flush(now)                publish rings, send frames, wake who sleeps
//          port.service(host_ns, inbox)   accept, handshake, heartbeat, loss: rare work
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "emu/base/setting.h"
#include "emu/base/units.h"
#include "emu/wire/channel.h"
#include "emu/wire/message.h"
#include "fabric/port/packets.h"

namespace fabric {

// One node may bring at most this many packets a turn, so that the others get theirs.
inline constexpr std::size_t kTurnPackets = 1024;
// A node that takes nothing for this long while packets wait for it holds other nodes' buffers.
inline constexpr std::uint64_t kStalledNs = 3'000'000'000;

enum class NodeEventKind : std::uint8_t { attached, lost };
struct NodeEvent {
  emu::NodeId node;
  NodeEventKind kind;
  std::string reason;  // of a loss: what the log says
};

// What came in. The loop takes everything out after each receive().
struct Inbox {
  std::vector<PacketHandle> packets;  // state fabric, meta filled and checked
  std::vector<NodeEvent> events;
};

// Counted by a port for each of its nodes; plain words with one writer.
struct AttachCounters {
  std::uint64_t packets_in = 0;
  std::uint64_t bytes_in = 0;
  std::uint64_t packets_out = 0;
  std::uint64_t bytes_out = 0;
  emu::ChannelCounters frames;    // of ports that have frames
  std::uint64_t wakeups = 0;      // system calls to wake the node
  std::uint64_t violations = 0;   // descriptors or frames that were refused
  std::uint64_t given_up = 0;     // times that emulated time stopped waiting for a stuck node
  std::uint64_t backlog_max = 0;  // deliveries that waited because the node did not take them
};

// Which nodes exist and what a node may ask for; from the configuration. Every port checks each
// descriptor against it before the packet becomes the fabric's.
struct EdgeRules {
  std::size_t node_count = 0;
  std::size_t flit_bytes = 16;
  std::uint16_t flits_max = 512;                     // longest worm
  bool trains = false;                               // packets may come in trains
  std::uint16_t lanes_of_class[emu::kClassCount]{};  // mask of VLs per TrafficClass
  emu::CycleTime cycle_time;
  emu::Cycle horizon_cycles = 0;  // packets may ask to wait at most this long for their launch
  std::vector<std::string> node_names;
  std::vector<emu::Setting> agreed;  // emu::agreed_settings(): nodes of other hosts compare them
};

// Null when the descriptor is well formed, else which field is wrong.
const char* descriptor_fault(const emu::TxDesc& desc, const EdgeRules& rules, emu::Cycle now);

class Port {
 public:
  virtual ~Port() = default;

  // Host time of all that follows until it is told again: frames are stamped with it when they
  // come and go. Ports without frames ignore it.
  virtual void begin_turn(std::uint64_t /*host_ns*/) {}
  virtual void service(std::uint64_t host_ns, Inbox& inbox) = 0;
  virtual void receive(emu::Cycle now, Inbox& inbox) = 0;

  // Only for nodes that are attached through this port. deliver() takes the packet over and ends
  // its way by PacketMemory::release() when the node has done with it.
  virtual void deliver(emu::NodeId node, PacketHandle packet, const emu::RxDesc& desc) = 0;
  virtual void injected(emu::NodeId node, const emu::Injected& event) = 0;
  virtual void answer(emu::NodeId node, const emu::Answer& answer) = 0;
  virtual void flush(emu::Cycle now) = 0;

  // Ends the session of an attached node; service() says so. The node is told why.
  virtual void cut(emu::NodeId node, const std::string& reason) = 0;

  // The cycle up to which emulated time may run for the sake of the nodes that say how far they
  // have served (kNever: none does). Called once a turn, before the engine steps.
  virtual emu::Cycle follow(emu::Cycle, std::uint64_t /*host_ns*/) { return emu::kNever; }

  // Sleeping of the loop: announces it to the nodes and looks once more; false means that
  // something is there. wait_fds() become readable when there is something to service or receive.
  virtual bool prepare_sleep() = 0;
  // `readable`: one of all ports' wait_fds() was. True: service() has something to do now.
  virtual bool end_sleep(bool readable) = 0;
  virtual std::vector<int> wait_fds() const = 0;  // constant after start
  // Host time of the next thing that service() wants to do by itself; ~0: nothing.
  virtual std::uint64_t next_service_ns() const = 0;

  virtual const AttachCounters& counters(emu::NodeId node) const = 0;
  virtual bool attached(emu::NodeId node) const = 0;
};

}  // namespace fabric
