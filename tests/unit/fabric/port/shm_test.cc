// Both ends of the shared-memory attachment: packets, sleep, death and return. Peers that lie are
// in shm_liars_test.cc.
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "emu/base/log.h"
#include "emu/ring/unix_socket.h"
#include "emu/wire/shm_layout.h"
#include "tests/unit/fabric/port/shm_scene.h"

namespace fabric {
namespace {

std::size_t open_files() {
  std::size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    (void)entry;
    ++count;
  }
  return count;
}

TEST_F(ShmPortTest, TimeFollowsTheSlowestNodeThatIsAwake) {
  options_.follow = {1000, 200'000'000};
  port_.reset();
  open_port();
  auto a = attach("n0");
  auto b = attach("n1");
  EXPECT_EQ(port_->follow(now_, host_ns_), emu::kNever);  // nobody has said anything yet
  now_ += 10'000;
  a->served(now_ - 100);
  b->served(now_ - 300);
  EXPECT_EQ(port_->follow(now_, host_ns_), now_ + 700);
  b->served(emu::kNever);  // sleeps
  EXPECT_EQ(port_->follow(now_, host_ns_), now_ + 900);
  ASSERT_TRUE(b->prepare_sleep());
  // What comes for it wakes it, and from then on it has something to do.
  ASSERT_EQ(send(*a, 1, 1), 1U);
  a->flush();
  a->served(emu::kNever);
  const emu::Cycle woken = now_;
  turn();
  EXPECT_EQ(port_->follow(now_, host_ns_), woken + 1000);
  b->end_sleep(true);
  EXPECT_EQ(receive(*b).size(), 1U);
  b->served(now_);
  EXPECT_EQ(port_->follow(now_, host_ns_), now_ + 1000);
}

TEST_F(ShmPortTest, TimeDoesNotStopForTheStuckOrTheDead) {
  options_.follow = {1000, 200'000'000};
  port_.reset();
  open_port();
  auto a = attach("n0");
  auto b = attach("n1");
  now_ += 10'000;
  a->served(now_);
  b->served(now_);
  EXPECT_EQ(port_->follow(now_, host_ns_), now_ + 1000);
  a.reset();  // dies
  turn();
  now_ += 1000;
  std::uint64_t waited = 0;
  while (port_->follow(now_, host_ns_) <= now_ && waited < 1000) {
    turn();
    --now_;
    ++waited;
  }
  EXPECT_GT(waited, 90U);  // turns of 2 ms
  EXPECT_LT(waited, 110U);
  EXPECT_EQ(port_->follow(now_, host_ns_), emu::kNever);
  EXPECT_EQ(port_->counters(1).given_up, 1U);
  EXPECT_EQ(port_->counters(0).given_up, 0U);
}

TEST_F(ShmPortTest, APacketCrossesWithoutACopyAndItsSlotComesBack) {
  auto n0 = attach("n0");
  auto n1 = attach("n1");
  ASSERT_EQ(n0->state(), hca::AttachState::attached) << n0->reason();
  ASSERT_EQ(n1->state(), hca::AttachState::attached) << n1->reason();
  EXPECT_EQ(n0->session(), 1U);
  EXPECT_EQ(n1->info().node, 1);
  EXPECT_EQ(n1->info().cycle_time.cycle_ps, 320'000U);
  EXPECT_EQ(n0->acquirable(), kSlots);
  for (std::uint64_t i = 1; i <= 10; ++i) ASSERT_EQ(send(*n0, 1, i), 1U);
  n0->flush();
  turn();
  EXPECT_EQ(n0->acquirable(), kSlots - 10);
  EXPECT_EQ(receive(*n1), (std::vector<std::uint64_t>{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}));
  turn();
  EXPECT_EQ(n0->acquirable(), kSlots);
  std::array<emu::Injected, 32> injected;
  ASSERT_EQ(n0->injected(injected), 10U);
  EXPECT_EQ(injected[9].cookie, 10U);
  EXPECT_GE(n0->now_cycle(), 1000U);
  EXPECT_EQ(port_->counters(0).packets_in, 10U);
  EXPECT_EQ(port_->counters(1).packets_out, 10U);
}

// A train has slots side by side of its own, and comes back by its first one.
TEST_F(ShmPortTest, ATrainCrossesAsOne) {
  auto strict = attach("n2");
  EXPECT_EQ(strict->acquirable(), kSlots);
  EXPECT_FALSE(strict->acquire_train()) << "flits are modelled";
  strict.reset();
  port_.reset();
  options_.rules.trains = true;
  open_port();
  auto n0 = attach("n0");
  auto n1 = attach("n1");
  const std::size_t groups = emu::train_groups(kSlots);
  EXPECT_EQ(n0->acquirable(), kSlots - groups * emu::kTrainSlots);
  for (int round = 0; round < 3; ++round) {
    for (std::size_t i = 0; i < groups; ++i) {
      const auto slot = n0->acquire_train();
      ASSERT_TRUE(slot);
      emu::TxDesc train = desc(slot->buffer, 1, i);
      train.more_packets = 15;
      train.length = emu::kTrainBufferBytes / 4;
      train.flits = 0x2000;
      slot->bytes[0] = static_cast<std::uint8_t>(i);
      slot->bytes[emu::kTrainBufferBytes - 1] = static_cast<std::uint8_t>(i + 1);
      ASSERT_EQ(n0->send({&train, 1}), 1U);
    }
    EXPECT_FALSE(n0->acquire_train());
    n0->flush();
    turn();
    std::array<hca::Received, 32> got;
    ASSERT_EQ(n1->receive(got), groups);
    for (std::size_t i = 0; i < groups; ++i) {
      EXPECT_EQ(got[i].desc.more_packets, 15);
      EXPECT_EQ(got[i].bytes[0], i);
      EXPECT_EQ(got[i].bytes[emu::kTrainBufferBytes - 1], i + 1);
      n1->release(got[i].desc.buffer);
    }
    n1->flush();
    turn();
  }
  EXPECT_EQ(port_->counters(0).packets_in, 3 * groups * 16);
  EXPECT_EQ(port_->counters(1).packets_out, 3 * groups * 16);
  EXPECT_EQ(port_->counters(0).bytes_in, 3 * groups * emu::kTrainBufferBytes);
  const auto unused = n0->acquire_train();
  n0->abandon(unused->buffer);
  EXPECT_EQ(n0->acquirable(), kSlots - groups * emu::kTrainSlots);
}

TEST_F(ShmPortTest, AnswersArriveAtTheNodeThatAsked) {
  auto n0 = attach("n0");
  port_->answer(0, {77, 5, 3, emu::Verdict::nack, {}});
  turn();
  std::array<emu::Answer, 4> answers;
  ASSERT_EQ(n0->answers(answers), 1U);
  EXPECT_EQ(answers[0].connection, 77U);
  EXPECT_EQ(answers[0].rejected_by, 3);
}

TEST_F(ShmPortTest, ASecondProcessOfTheSameNodeIsRefusedAndToldWhy) {
  auto first = attach("n0");
  auto second = attach("n0");
  EXPECT_EQ(second->state(), hca::AttachState::down);
  EXPECT_NE(second->reason().find(std::to_string(::getpid())), std::string::npos)
      << second->reason();
  auto stranger = attach("n9");
  EXPECT_NE(stranger->reason().find("n9"), std::string::npos) << stranger->reason();
  EXPECT_EQ(first->state(), hca::AttachState::attached);
}

// Takes all descriptors of this process but a few, until it ends.
class FewDescriptors {
 public:
  explicit FewDescriptors(std::size_t left) {
    ::getrlimit(RLIMIT_NOFILE, &before_);
    const rlimit low{std::min<rlim_t>(before_.rlim_cur, 256), before_.rlim_max};
    ::setrlimit(RLIMIT_NOFILE, &low);
    for (emu::UniqueFd fd(::dup(0)); fd; fd = emu::UniqueFd(::dup(0)))
      taken_.push_back(std::move(fd));
    taken_.resize(taken_.size() - left);
  }
  ~FewDescriptors() { ::setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_{};
  std::vector<emu::UniqueFd> taken_;
};

// It never was attached, so its link did not go down either. It asks again and again: the log has
// one line of it.
TEST_F(ShmPortTest, ANodeForWhichFabricdHasNoDescriptorsIsRefusedAndToldWhy) {
  const std::string log = run_dir_ + "/fabricd.log";
  ASSERT_TRUE(emu::open_log(log, "fabricd"));
  std::unique_ptr<hca::Attachment> n0;
  {
    const FewDescriptors few(3);  // two ends of the connection, and the rings
    n0 = attach("n0");
    EXPECT_EQ(n0->state(), hca::AttachState::down);
    EXPECT_TRUE(n0->reason().starts_with("fabricd refused: ")) << n0->reason();
    EXPECT_TRUE(n0->reason().ends_with("Too many open files")) << n0->reason();
    settle(*n0);
    EXPECT_TRUE(events_.empty()) << last_loss();
  }
  std::ifstream lines(log);
  const std::string text{std::istreambuf_iterator<char>(lines), {}};
  EXPECT_EQ(std::ranges::count(text, '\n'), 1) << text;
  EXPECT_NE(text.find("node n0 refused: "), std::string::npos) << text;
  settle(*n0);
  EXPECT_EQ(n0->state(), hca::AttachState::attached) << n0->reason();
  ASSERT_EQ(events_.size(), 1U);
  EXPECT_EQ(events_[0].kind, NodeEventKind::attached);
}

TEST_F(ShmPortTest, KilledNodeGivesEveryBufferBackWhereverItWas) {
  auto n0 = attach("n0");
  auto n1 = attach("n1");
  const std::uint16_t pool0 = memory_.pools()[0];
  const std::uint16_t pool1 = memory_.pools()[1];
  // n0's packets: some read and not released at n1, some in n1's ring, some in the fabric.
  for (std::uint64_t i = 0; i < 8; ++i) send(*n0, 1, i);
  n0->flush();
  turn();
  EXPECT_EQ(receive(*n1, false).size(), 8U);
  for (std::uint64_t i = 0; i < 8; ++i) send(*n0, 1, i);
  n0->flush();
  turn();
  hold_ = true;
  for (std::uint64_t i = 0; i < 8; ++i) send(*n0, 1, i);
  for (std::uint64_t i = 0; i < 8; ++i) send(*n1, 0, 100 + i);
  n0->flush();
  n1->flush();
  turn();
  ASSERT_EQ(held_.size(), 16U);
  EXPECT_EQ(count_state(pool0, SlotState::holder), 16U);
  n1.reset();  // what the kernel does at kill -9: its sockets close
  turn();
  EXPECT_FALSE(port_->attached(1));
  EXPECT_NE(last_loss().find("closed"), std::string::npos);
  EXPECT_EQ(count_state(pool0, SlotState::holder), 0U);
  EXPECT_EQ(count_state(pool0, SlotState::fabric), 8U);
  EXPECT_EQ(memory_.free_count(pool1), kSlots - 8);
  // The rest drains: n0 gets its slots back, the dead node's pool goes.
  hold_ = false;
  while (!held_.empty()) {
    arrive(held_.front());
    held_.pop_front();
  }
  turn();
  EXPECT_EQ(n0->acquirable(), kSlots);
  EXPECT_EQ(memory_.pools().size(), 2U);  // n0 still holds 8 packets of the dead node
  EXPECT_EQ(receive(*n0).size(), 8U);
  turn();
  turn();
  EXPECT_EQ(memory_.pools().size(), 1U);
}

TEST_F(ShmPortTest, ANodeRejoinsWithANewPoolWhileTheOldOneDrains) {
  auto n0 = attach("n0");
  auto n1 = attach("n1");
  hold_ = true;
  send(*n0, 1, 1);
  n0->flush();
  turn();
  n0.reset();
  turn();
  n0 = attach("n0");
  ASSERT_EQ(n0->state(), hca::AttachState::attached) << n0->reason();
  EXPECT_EQ(memory_.pools().size(), 3U);
  hold_ = false;
  send(*n0, 1, 2);
  n0->flush();
  turn();
  arrive(held_.front());
  turn();
  EXPECT_EQ(receive(*n1), (std::vector<std::uint64_t>{2, 1}));
  turn();
  turn();
  EXPECT_EQ(memory_.pools().size(), 2U);
}

TEST_F(ShmPortTest, ReattachesAfterTheFabricWasAwayAndSaysSo) {
  auto n0 = attach("n0");
  send(*n0, 0, 1);
  port_.reset();
  host_ns_ += 10'000'000;
  EXPECT_EQ(n0->service(host_ns_), hca::AttachState::down);
  EXPECT_FALSE(n0->acquire());
  const emu::Cycle stood = n0->now_cycle();
  open_port();
  settle(*n0);
  EXPECT_EQ(n0->state(), hca::AttachState::attached) << n0->reason();
  EXPECT_EQ(n0->session(), 2U);
  EXPECT_EQ(n0->acquirable(), kSlots);
  EXPECT_GE(n0->now_cycle(), stood);
}

TEST_F(ShmPortTest, NothingIsLeftOpenAfterManySessions) {
  { auto warm = attach("n0"); }
  turn();
  turn();
  const std::size_t before = open_files();
  for (int i = 0; i < 20; ++i) {
    auto n0 = attach("n0");
    ASSERT_EQ(n0->state(), hca::AttachState::attached);
    send(*n0, 0, 1);
    n0->flush();
    turn();
    n0.reset();
    turn();
    turn();
  }
  EXPECT_EQ(open_files(), before);
  EXPECT_EQ(memory_.pools().size(), 0U);
}

TEST_F(ShmPortTest, PoolsOfManySessionsNeverMeet) {
  auto n0 = attach("n0");
  for (int i = 0; i < 1100; ++i) {
    auto n1 = attach("n1");
    ASSERT_EQ(n1->state(), hca::AttachState::attached);
    host_ns_ += 10'000'000;
    ASSERT_EQ(n0->service(host_ns_), hca::AttachState::attached) << n0->reason();
    n1.reset();
    turn();
    turn();
  }
  auto n1 = attach("n1");
  EXPECT_EQ(send(*n0, 1, 1), 1U);  // touches n0's own pool
  EXPECT_EQ(n0->state(), hca::AttachState::attached);
}

TEST_F(ShmPortTest, StrayWakeUpsAreNoTime) {
  auto n0 = attach("n0");
  auto n1 = attach("n1");
  ASSERT_EQ(send(*n0, 1, 7), 1U);
  n0->flush();
  turn();
  const std::uint64_t begin_ns = host_ns_;
  while (port_->attached(1) && host_ns_ - begin_ns < 2 * kStalledNs) {
    host_ns_ += 500'000;
    ASSERT_TRUE(port_->prepare_sleep());
    (void)port_->end_sleep(true);
    turn();
  }
  EXPECT_GE(host_ns_ - begin_ns, kStalledNs);
}

TEST_F(ShmPortTest, AnswersThatNobodyTakesHoldTheNodeBack) {
  auto n0 = attach("n0");
  for (int i = 0; i < 200'000 && port_->attached(0); ++i) {
    port_->answer(0, {});
    if (i % 100 == 0) turn();
  }
  send(*n0, 1, 1);
  n0->flush();
  turn();
  EXPECT_EQ(port_->counters(0).packets_in, 0U);
}

TEST_F(ShmPortTest, SleepersAreWokenAndOnlySleepers) {
  auto n0 = attach("n0");
  auto n1 = attach("n1");
  auto readable = [](int fd) { return *emu::wait_readable(fd, 0); };
  auto drain_control = [&] {
    n0->end_sleep(true);
    n1->end_sleep(true);
    host_ns_ += 10'000'000;
    n0->service(host_ns_);
    n1->service(host_ns_);
  };
  drain_control();
  send(*n0, 1, 1);
  n0->flush();
  turn();
  EXPECT_FALSE(readable(n1->fd()));   // it did not say that it sleeps
  EXPECT_FALSE(n1->prepare_sleep());  // and now it must not
  receive(*n1);
  turn();
  ASSERT_TRUE(n1->prepare_sleep());
  ASSERT_TRUE(port_->prepare_sleep());
  EXPECT_FALSE(readable(port_->wait_fds()[0]));
  send(*n0, 1, 2);
  n0->flush();
  EXPECT_TRUE(readable(port_->wait_fds()[0]));
  EXPECT_FALSE(port_->end_sleep(true));  // packets: nobody comes or goes
  turn();
  EXPECT_TRUE(readable(n1->fd()));
  EXPECT_FALSE(n1->end_sleep(true));
  EXPECT_EQ(receive(*n1).size(), 1U);
  EXPECT_FALSE(readable(n1->fd()));
  EXPECT_EQ(port_->counters(1).wakeups, 1U);
}

// Who wakes by itself just when it is rung leaves the eventfd as it is: no ring is lost, and the
// old one ends a later wait once.
TEST_F(ShmPortTest, ARingThatMeetsATimeoutIsNotLost) {
  auto n0 = attach("n0");
  auto n1 = attach("n1");
  auto readable = [](int fd) { return *emu::wait_readable(fd, 0); };
  n1->end_sleep(true);
  n1->service(host_ns_ += 10'000'000);
  ASSERT_TRUE(n1->prepare_sleep());
  send(*n0, 1, 1);
  n0->flush();
  turn();
  EXPECT_FALSE(n1->end_sleep(false));
  EXPECT_FALSE(n1->prepare_sleep());
  EXPECT_EQ(receive(*n1).size(), 1U);
  ASSERT_TRUE(n1->prepare_sleep());
  EXPECT_TRUE(readable(n1->fd()));
  EXPECT_TRUE(n1->end_sleep(true));  // not for packets: for what else, service() looks
  ASSERT_TRUE(n1->prepare_sleep());
  EXPECT_FALSE(readable(n1->fd()));
  n1->end_sleep(false);
}

TEST_F(ShmPortTest, APacketThatCameBeforeTheSleepIsSeen) {
  auto n0 = attach("n0");
  send(*n0, 0, 1);
  n0->flush();
  EXPECT_FALSE(port_->prepare_sleep());
}

TEST_F(ShmPortTest, ANodeThatTakesNothingIsDetachedAndTheSenderGetsItsSlotsBack) {
  auto n0 = attach("n0");
  auto n1 = attach("n1");
  auto n2 = attach("n2");
  for (std::uint64_t i = 0; i < kSlots; ++i) send(*n0, 1, i);
  n0->flush();
  for (int i = 0; i < 600 && port_->attached(1); ++i) {
    turn();
    host_ns_ += 10'000'000;
  }
  EXPECT_FALSE(port_->attached(1));
  EXPECT_NE(last_loss().find("does not take"), std::string::npos) << last_loss();
  turn();
  EXPECT_EQ(n0->acquirable(), kSlots);
  EXPECT_TRUE(port_->attached(2));
}

// Its ring is as full at each look as it was at the last: what it took is judged, not what is left.
TEST_F(ShmPortTest, ANodeThatTakesAsMuchAsComesIsNotCut) {
  auto n0 = attach("n0");
  auto n1 = attach("n1");
  std::uint64_t sent = 0;
  for (; sent < 64; ++sent) ASSERT_EQ(send(*n1, 0, sent), 1U);
  n1->flush();
  turn();
  std::array<hca::Received, 8> got;
  std::array<emu::Injected, 64> said;
  const std::uint64_t begin_ns = host_ns_;
  while (host_ns_ - begin_ns < 2 * kStalledNs) {
    ASSERT_EQ(n0->receive(got), got.size()) << last_loss();
    for (const hca::Received& one : got) n0->release(one.desc.buffer);
    n0->flush();
    n1->injected(said);
    for (std::size_t i = 0; i < got.size(); ++i) ASSERT_EQ(send(*n1, 0, ++sent), 1U);
    n1->flush();
    host_ns_ += 10'000'000;
    turn();
    ASSERT_TRUE(port_->attached(0)) << last_loss();
  }
}

}  // namespace
}  // namespace fabric
