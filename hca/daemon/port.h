// The host half's window on the attachment.
#pragma once

#include <array>
#include <span>
#include <vector>

#include "emu/wire/shm_layout.h"
#include "hca/attach/attach.h"
#include "hca/host/port.h"

namespace hca {

class AttachmentPort : public PacketPort {
 public:
  // `pass_through`: the fabric is no network of flits, and packets without a launch time have left
  // when they are sent. It does not tell of these. `exact_clock`: now_cycle() is what the fabric's
  // clock shows and no guess, so that a launch time before it has come for the fabric too.
  AttachmentPort(Attachment& attachment, bool pass_through, bool exact_clock)
      : attachment_(attachment), pass_through_(pass_through), exact_clock_(exact_clock) {}

  bool reserve(PacketSlot& slot) override {
    if (const auto buffer = attachment_.acquire()) {
      slot = {buffer->bytes, buffer->buffer};
      return true;
    }
    if (!attachment_.link_down()) return false;
    slot = {unsent_.data(), kUnsent};
    return true;
  }
  // Where packets have left when they are sent no lane holds any back.
  std::uint32_t slots() const override {
    return pass_through_ ? 0 : attachment_.info().packet_slots;
  }
  bool reserve_train(PacketSlot& slot) override {
    const auto buffer = attachment_.acquire_train();
    if (!buffer) return false;
    slot = {buffer->bytes, buffer->buffer};
    return true;
  }
  bool lend(const PacketSlot& slot, std::span<const std::uint8_t> payload,
            std::uint8_t* home) override {
    return attachment_.lend(slot.buffer, payload, home);
  }
  void bring_home() override { attachment_.bring_home(); }
  void cancel(std::uint16_t buffer) override {
    if (buffer != kUnsent) attachment_.abandon(buffer);
  }
  // Packets that meet a fabric that has just gone are lost with it: hca/host hears of that by
  // fabric_restarted() and its transport sends again.
  void send(std::span<const emu::TxDesc> packets) override {
    // As by an HCA whose cable is out: gone as far as this side knows.
    if (!packets.empty() && packets.front().buffer == kUnsent) {
      for (const emu::TxDesc& packet : packets)
        left_.push_back({packet.cookie, 0, packet.flits, packet.traffic_class, packet.kind, 0});
      return;
    }
    if (!pass_through_) {
      (void)attachment_.send(packets);
      return;
    }
    // A QP that once used launch times keeps the last one, so that nothing overtakes it. What came
    // before it has passed when the clock was published that shows more.
    const emu::Cycle passed = exact_clock_ ? attachment_.now_cycle() : 0;
    sending_.assign(packets.begin(), packets.end());
    for (emu::TxDesc& packet : sending_) {
      if (packet.kind != emu::PacketKind::data) continue;
      if (packet.launch_cycle < passed) packet.launch_cycle = 0;
      if (packet.launch_cycle != 0) continue;
      left_.push_back({packet.cookie, 0, packet.flits, packet.traffic_class, packet.kind, 0});
    }
    (void)attachment_.send(sending_);
  }

  // What has left since the last clear_left().
  std::span<const emu::Injected> left() const { return left_; }
  void clear_left() { left_.clear(); }

 private:
  // The buffer of every packet that is filled while the link is down.
  static constexpr std::uint16_t kUnsent = emu::kPoolSlotsMax;  // no slot has this number

  Attachment& attachment_;
  std::array<std::uint8_t, emu::kPacketBytesMax> unsent_;
  std::vector<emu::Injected> left_;
  std::vector<emu::TxDesc> sending_;
  bool pass_through_;
  bool exact_clock_;
};

}  // namespace hca
