// The host half's window on the attachment.
#pragma once

#include "hca/attach/attach.h"
#include "hca/host/port.h"

namespace hca {

class AttachmentPort : public PacketPort {
 public:
  explicit AttachmentPort(Attachment& attachment) : attachment_(attachment) {}

  bool reserve(PacketSlot& slot) override {
    const auto buffer = attachment_.acquire();
    if (!buffer) return false;
    slot = {buffer->bytes, buffer->buffer};
    return true;
  }
  void cancel(std::uint32_t buffer) override { attachment_.abandon(buffer); }
  // Packets that meet a fabric that has just gone are lost with it: hca/host hears of that by
  // fabric_restarted() and its transport sends again.
  void send(std::span<const emu::TxDesc> packets) override { (void)attachment_.send(packets); }

 private:
  Attachment& attachment_;
};

}  // namespace hca
