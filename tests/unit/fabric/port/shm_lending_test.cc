// Payloads that stay with their sender, by the attachments of one process and its fabric: read
// where they lie, and in the buffer again for whoever has the buffer alone.
#include <algorithm>

#include "emu/packet/parse.h"
#include "emu/wire/lending.h"
#include "tests/unit/fabric/port/shm_scene.h"

namespace fabric {
namespace {

class ShmLendingTest : public ShmPortTest {
 protected:
  void SetUp() override {
    ShmPortTest::SetUp();
    port_.reset();
    options_.rules.trains = true;
    options_.slots_per_node = 250;  // trains begin anywhere
    memory_.set_lending(&lending_);
    open_port();
    payload_.resize(emu::kTrainPayloadMax);
    for (std::size_t i = 0; i < payload_.size(); ++i)
      payload_[i] = static_cast<std::uint8_t>(i * 7 >> 3);
    sent_ = payload_;
  }
  void TearDown() override { port_.reset(); }
  std::unique_ptr<hca::Attachment> attach_here(const std::string& name) {
    auto attachment = hca::make_shm_attachment({run_dir_, name, &lending_});
    settle(*attachment);
    return attachment;
  }
  // Lends all of payload_; the slot.
  std::uint16_t lend(hca::Attachment& from, emu::NodeId dest) {
    const auto slot = from.acquire_train();
    EXPECT_TRUE(slot);
    EXPECT_TRUE(from.lend(slot->buffer, payload_, slot->bytes + emu::kTrainHeadBytes));
    send_train(from, slot->buffer, dest);
    return slot->buffer;
  }
  static void send_train(hca::Attachment& from, std::uint16_t buffer, emu::NodeId dest) {
    emu::TxDesc train = desc(buffer, dest, 1);
    train.more_packets = 15;
    train.length = (emu::kTrainHeadBytes + emu::kTrainPayloadMax) / 4;
    train.flits = 0x2000;
    EXPECT_EQ(from.send({&train, 1}), 1U);
    from.flush();
  }
  void arrive_held() {
    arrive(held_.front());
    port_->flush(now_);
  }
  static hca::Received take(hca::Attachment& at) {
    std::array<hca::Received, 2> got{};
    EXPECT_EQ(at.receive(got), 1U);
    return got[0];
  }
  void expect_home(const hca::Received& got) const {
    EXPECT_TRUE(got.lent.empty());
    EXPECT_TRUE(std::equal(sent_.begin(), sent_.end(), got.bytes + emu::kTrainHeadBytes));
  }
  void scribble() { std::ranges::fill(payload_, std::uint8_t{0xee}); }

  emu::Lending lending_;
  std::vector<std::uint8_t> payload_;
  std::vector<std::uint8_t> sent_;
};

TEST_F(ShmLendingTest, IsReadWhereItLiesAndOnlyOnce) {
  auto n0 = attach_here("n0");
  auto n1 = attach_here("n1");
  std::uint16_t first = 0;
  for (int round = 0; round < 3; ++round) {
    const std::uint16_t slot = lend(*n0, 1);
    if (round == 0) first = slot;
    EXPECT_EQ(slot, first);
    turn();
    const hca::Received got = take(*n1);
    EXPECT_EQ(got.lent.data(), payload_.data());
    EXPECT_EQ(got.lent.size(), payload_.size());
    n1->release(got.desc.buffer);
    n1->flush();
    turn();
  }
  // The same slot, with its payload in it.
  const auto slot = n0->acquire_train();
  ASSERT_EQ(slot->buffer, first);
  std::ranges::copy(sent_, slot->bytes + emu::kTrainHeadBytes);
  send_train(*n0, slot->buffer, 1);
  turn();
  expect_home(take(*n1));
}

TEST_F(ShmLendingTest, ComesHomeWhenItsSenderSaysSo) {
  auto n0 = attach_here("n0");
  auto n1 = attach_here("n1");
  lend(*n0, 1);
  n0->bring_home();
  scribble();
  turn();
  expect_home(take(*n1));
}

TEST_F(ShmLendingTest, ComesHomeWhenItsSenderIsLost) {
  auto n0 = attach_here("n0");
  auto n1 = attach_here("n1");
  hold_ = true;
  lend(*n0, 1);
  turn();
  port_->cut(0, "for the test");
  settle(*n0);
  EXPECT_EQ(n0->session(), 2U) << "it is back, with another pool";
  scribble();
  ASSERT_EQ(held_.size(), 1U);
  arrive_held();
  expect_home(take(*n1));
}

// Its receiver is lost, does not know it yet, and reads on.
TEST_F(ShmLendingTest, ComesHomeWhenItsReceiverIsLost) {
  auto n0 = attach_here("n0");
  auto n1 = attach_here("n1");
  lend(*n0, 1);
  turn();
  port_->cut(1, "for the test");
  turn();
  turn();
  for (int i = 0; i < 3; ++i) n0->abandon(n0->acquire_train()->buffer);  // takes back what there is
  scribble();
  expect_home(take(*n1));
}

// A node in another process, which is told of no table.
TEST_F(ShmLendingTest, ComesHomeForOtherProcesses) {
  auto n0 = attach_here("n0");
  auto other = attach("n1");
  lend(*n0, 1);
  turn();
  scribble();
  expect_home(take(*other));
  EXPECT_FALSE(other->lend(other->acquire_train()->buffer, payload_, nullptr));
}

TEST_F(ShmLendingTest, ComesHomeForWhoReadsAllOfAPacket) {
  auto n0 = attach_here("n0");
  auto n1 = attach_here("n1");
  hold_ = true;
  lend(*n0, 1);
  turn();
  ASSERT_EQ(held_.size(), 1U);
  const std::uint8_t* bytes = memory_.whole_bytes(held_.front());
  EXPECT_TRUE(std::equal(sent_.begin(), sent_.end(), bytes + emu::kTrainHeadBytes));
  scribble();
  arrive_held();
  expect_home(take(*n1));
}

TEST_F(ShmLendingTest, EndsWithAnAbandonedSlot) {
  auto n0 = attach_here("n0");
  const auto slot = n0->acquire_train();
  std::vector<std::uint8_t> home(emu::kTrainPayloadMax);
  ASSERT_TRUE(n0->lend(slot->buffer, payload_, home.data()));
  n0->abandon(slot->buffer);
  n0->bring_home();
  EXPECT_EQ(home, std::vector<std::uint8_t>(emu::kTrainPayloadMax)) << "nobody reads it";
  lend(*n0, 1);
}

}  // namespace
}  // namespace fabric
