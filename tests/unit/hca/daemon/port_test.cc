// What a host half's packets become on their way to a fabric where packets pass at once.
#include "hca/daemon/port.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

namespace hca {
namespace {

class FakeAttachment final : public Attachment {
 public:
  AttachState service(std::uint64_t) override { return AttachState::attached; }
  AttachState state() const override { return AttachState::attached; }
  const std::string& reason() const override { return reason_; }
  bool link_down() const override { return dark; }
  std::uint64_t session() const override { return 1; }
  const FabricInfo& info() const override { return about; }
  emu::Cycle now_cycle() const override { return now; }
  std::optional<TxBuffer> acquire() override { return std::nullopt; }
  std::size_t acquirable() const override { return 0; }
  void abandon(std::uint16_t) override {}
  std::size_t send(std::span<const emu::TxDesc> descriptors) override {
    sent.assign(descriptors.begin(), descriptors.end());
    return sent.size();
  }
  std::size_t receive(std::span<Received>) override { return 0; }
  void release(std::uint32_t) override {}
  std::size_t injected(std::span<emu::Injected>) override { return 0; }
  std::size_t answers(std::span<emu::Answer>) override { return 0; }
  void flush() override {}
  bool prepare_sleep() override { return true; }
  bool end_sleep(bool) override { return false; }
  int fd() const override { return -1; }

  emu::Cycle now = 1000;
  bool dark = false;
  std::vector<emu::TxDesc> sent;
  FabricInfo about;

 private:
  std::string reason_;
};

emu::TxDesc packet(emu::Cycle launch, std::uint64_t cookie,
                   emu::PacketKind kind = emu::PacketKind::data) {
  emu::TxDesc desc{};
  desc.launch_cycle = launch;
  desc.cookie = cookie;
  desc.kind = kind;
  return desc;
}

std::vector<std::uint64_t> cookies(std::span<const emu::Injected> left) {
  std::vector<std::uint64_t> all;
  for (const emu::Injected& event : left) all.push_back(event.cookie);
  return all;
}

const std::vector<emu::TxDesc> kPackets = {packet(0, 1), packet(999, 2), packet(1000, 3),
                                           packet(2000, 4), packet(0, 5, emu::PacketKind::probe)};

TEST(AttachmentPort, OfANetworkTheFabricTells) {
  FakeAttachment attachment;
  AttachmentPort port(attachment, false, true);
  port.send(kPackets);
  EXPECT_TRUE(port.left().empty());
  ASSERT_EQ(attachment.sent.size(), kPackets.size());
  EXPECT_EQ(attachment.sent[1].launch_cycle, 999U);
}

// The fabric tells of the packets that keep a launch time and of no other: each once.
TEST(AttachmentPort, WherePacketsPassAtOnceWhatHasNoLaunchTimeOrAPastOneHasLeft) {
  FakeAttachment attachment;
  AttachmentPort port(attachment, true, true);
  port.send(kPackets);
  EXPECT_EQ(cookies(port.left()), (std::vector<std::uint64_t>{1, 2}));
  std::vector<emu::Cycle> launches;
  for (const emu::TxDesc& desc : attachment.sent) launches.push_back(desc.launch_cycle);
  EXPECT_EQ(launches, (std::vector<emu::Cycle>{0, 0, 1000, 2000, 0}));
  port.clear_left();
  EXPECT_TRUE(port.left().empty());
}

// A guess may be ahead of the fabric's clock: then a packet would overtake the one before it.
TEST(AttachmentPort, AGuessedClockLeavesLaunchTimesAlone) {
  FakeAttachment attachment;
  AttachmentPort port(attachment, true, false);
  port.send(kPackets);
  EXPECT_EQ(cookies(port.left()), (std::vector<std::uint64_t>{1}));
  EXPECT_EQ(attachment.sent[1].launch_cycle, 999U);
}

// Lanes share the slots where an arbiter holds packets back, and only there.
TEST(AttachmentPort, SaysHowManySlotsLanesShare) {
  FakeAttachment attachment;
  AttachmentPort port(attachment, false, true);
  EXPECT_EQ(port.slots(), 0U);
  attachment.about.packet_slots = 4096;
  EXPECT_EQ(port.slots(), 4096U);
  EXPECT_EQ(AttachmentPort(attachment, true, true).slots(), 0U);
}

// Away without a word, the fabric may come back and packets wait; without a link they are gone.
TEST(AttachmentPort, WithoutALinkPacketsLeaveForNowhere) {
  FakeAttachment attachment;
  AttachmentPort port(attachment, false, true);
  PacketSlot slot;
  EXPECT_FALSE(port.reserve(slot));
  attachment.dark = true;
  PacketSlot another;
  ASSERT_TRUE(port.reserve(slot));
  ASSERT_TRUE(port.reserve(another));
  port.cancel(another.buffer);
  std::fill_n(slot.bytes, emu::kPacketBytesMax, std::uint8_t{1});
  emu::TxDesc desc = packet(2000, 7);
  desc.buffer = slot.buffer;
  port.send({&desc, 1});
  EXPECT_TRUE(attachment.sent.empty());
  EXPECT_EQ(cookies(port.left()), (std::vector<std::uint64_t>{7}));
}

}  // namespace
}  // namespace hca
