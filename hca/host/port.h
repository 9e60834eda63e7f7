// Where hca/host hands its packets to: a window on the attachment. hca/daemon implements it over
// hca/attach, the cluster test over hca/wire.
#pragma once

#include <cstdint>
#include <span>

#include "emu/wire/message.h"

namespace hca {

struct PacketSlot {
  std::uint8_t* bytes = nullptr;  // emu::kPacketBytesMax
  std::uint16_t buffer = 0;
};

class PacketPort {
 public:
  virtual ~PacketPort() = default;
  // A free slot, or false: no room now (back-pressure; Host tries again at its next advance()).
  virtual bool reserve(PacketSlot& slot) = 0;
  // The same for a train, with emu::kTrainBufferBytes bytes; false: as single packets, please.
  virtual bool reserve_train(PacketSlot&) { return false; }
  // The payload of a train may stay in memory that we have mapped, for its receiver to read it
  // there instead of at `home` in the slot; false: copy it there. The sender calls bring_home(),
  // which does copy it, before that memory may change or go while the receiver has not answered.
  virtual bool lend(const PacketSlot&, std::span<const std::uint8_t>, std::uint8_t*) {
    return false;
  }
  virtual void bring_home() {}
  // How many there are, of packets or of trains' parts; 0: no lane need leave any to another.
  virtual std::uint32_t slots() const { return 0; }
  virtual void cancel(std::uint16_t buffer) = 0;
  // In this order; every slot was reserved and is filled. Cannot fail.
  virtual void send(std::span<const emu::TxDesc> packets) = 0;
};

// A delivered packet, its bytes valid until receive() returns. The sender may scribble over them
// meanwhile: headers are copied once and judged there.
struct Arrival {
  emu::RxDesc desc;
  const std::uint8_t* bytes = nullptr;
  std::span<const std::uint8_t> lent;  // a train's payload, if it stayed with its sender
};

}  // namespace hca
