// The host half's window on the attachment.
#pragma once

#include <span>
#include <vector>

#include "hca/attach/attach.h"
#include "hca/host/port.h"

namespace hca {

class AttachmentPort : public PacketPort {
 public:
  // `pass_through`: the fabric is no network of flits, and packets without a launch time have left
  // when they are sent. It does not tell of these.
  AttachmentPort(Attachment& attachment, bool pass_through)
      : attachment_(attachment), pass_through_(pass_through) {}

  bool reserve(PacketSlot& slot) override {
    const auto buffer = attachment_.acquire();
    if (!buffer) return false;
    slot = {buffer->bytes, buffer->buffer};
    return true;
  }
  void cancel(std::uint32_t buffer) override { attachment_.abandon(buffer); }
  // Packets that meet a fabric that has just gone are lost with it: hca/host hears of that by
  // fabric_restarted() and its transport sends again.
  void send(std::span<const emu::TxDesc> packets) override {
    (void)attachment_.send(packets);
    if (!pass_through_) return;
    for (const emu::TxDesc& packet : packets) {
      if (packet.launch_cycle != 0 || packet.kind != emu::PacketKind::data) continue;
      left_.push_back({packet.cookie, 0, packet.flits, packet.traffic_class, packet.kind, 0});
    }
  }

  // What has left since the last clear_left().
  std::span<const emu::Injected> left() const { return left_; }
  void clear_left() { left_.clear(); }

 private:
  Attachment& attachment_;
  std::vector<emu::Injected> left_;
  bool pass_through_;
};

}  // namespace hca
