// Both ends of the shared-memory attachment in one process: fabric/port/shm and hca/attach/shm, a
// fabric of no time in between. Then peers that lie, die and stop.
#include "fabric/port/shm.h"

#include <dirent.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <cstring>
#include <deque>
#include <filesystem>
#include <map>

#include "emu/base/prng.h"
#include "emu/clock/page.h"
#include "emu/ring/unix_socket.h"
#include "emu/wire/shm_layout.h"
#include "fabric/daemon/eal.h"
#include "hca/attach/shm.h"

namespace fabric {
namespace {

constexpr std::size_t kSlots = 256;

std::size_t open_files() {
  std::size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    (void)entry;
    ++count;
  }
  return count;
}

class ShmPortTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    char directory[] = "/tmp/flitnet-port-XXXXXX";
    ASSERT_NE(::mkdtemp(directory), nullptr);
    run_dir_ = directory;
    auto started = start_eal({run_dir_, "", 64});
    ASSERT_TRUE(started) << started.error().message;
  }
  static void TearDownTestSuite() {
    stop_eal();
    std::filesystem::remove_all(run_dir_);
  }

  void SetUp() override {
    options_.socket_path = run_dir_ + "/fabric.sock";
    options_.slots_per_node = kSlots;
    options_.rules.node_count = 3;
    options_.rules.node_names = {"n0", "n1", "n2"};
    options_.rules.lanes_of_class[0] = 0x8000;
    options_.rules.lanes_of_class[1] = 0x7ff0;
    options_.rules.lanes_of_class[2] = 0x000f;
    options_.rules.horizon_cycles = 1'000'000;
    clock_.emplace(*emu::ClockWriter::open(run_dir_ + "/clock.page", options_.rules.cycle_time,
                                           emu::ClockMode::elastic));
    open_port();
  }
  void open_port() {
    auto port = ShmPort::open(options_, memory_);
    ASSERT_TRUE(port) << port.error().message;
    port_ = std::move(*port);
  }
  std::unique_ptr<hca::Attachment> attach(const std::string& name) {
    auto attachment = hca::make_shm_attachment({run_dir_, name});
    settle(*attachment);
    return attachment;
  }
  void settle(hca::Attachment& attachment) {
    for (int i = 0; i < 4; ++i) {
      host_ns_ += 60'000'000;
      attachment.service(host_ns_);
      turn();
    }
  }
  // One turn of a fabric in which everything arrives at once.
  void turn() {
    host_ns_ += 2'000'000;
    port_->service(host_ns_, inbox_);
    port_->receive(now_, inbox_);
    for (const PacketHandle packet : inbox_.packets) pass(packet);
    inbox_.packets.clear();
    for (auto& event : inbox_.events) events_.push_back(event);
    inbox_.events.clear();
    port_->flush(now_);
    clock_->publish(++now_);
  }
  void pass(PacketHandle packet) {
    const PacketMeta meta = memory_.meta(packet);
    if (port_->attached(meta.source)) {
      port_->injected(meta.source,
                      {meta.cookie, now_, meta.flits, meta.traffic_class, meta.kind, 0});
    }
    if (hold_) {
      held_.push_back(packet);
    } else {
      arrive(packet);
    }
  }
  void arrive(PacketHandle packet) {
    const PacketMeta meta = memory_.meta(packet);
    if (!port_->attached(meta.dest)) return memory_.release(packet);
    port_->deliver(meta.dest, packet,
                   {now_, now_ + 40, 0, meta.length, meta.flits, meta.source, meta.vl_out,
                    meta.traffic_class, 0});
  }
  static emu::TxDesc desc(std::uint32_t buffer, emu::NodeId dest, std::uint64_t cookie) {
    return {cookie,
            0,
            buffer,
            640,
            40,
            dest,
            2,
            2,
            emu::TrafficClass::best_effort,
            emu::PacketKind::data,
            0};
  }
  std::size_t send(hca::Attachment& from, emu::NodeId dest, std::uint64_t cookie) {
    auto slot = from.acquire();
    if (!slot) return 0;
    std::memset(slot->bytes, static_cast<int>(cookie & 0xff), 640);
    std::memcpy(slot->bytes, &cookie, sizeof cookie);
    const auto d = desc(slot->buffer, dest, cookie);
    return from.send(std::span(&d, 1));
  }
  std::vector<std::uint64_t> receive(hca::Attachment& at, bool release = true) {
    std::vector<std::uint64_t> cookies;
    std::array<hca::Received, 32> got;
    while (const std::size_t count = at.receive(got)) {
      for (std::size_t i = 0; i < count; ++i) {
        std::uint64_t cookie;
        std::memcpy(&cookie, got[i].bytes, sizeof cookie);
        EXPECT_EQ(got[i].bytes[639], cookie & 0xff);
        cookies.push_back(cookie);
        if (release) at.release(got[i].desc.buffer);
      }
    }
    at.flush();
    return cookies;
  }
  std::size_t count_state(std::uint16_t pool, SlotState state) {
    std::size_t count = 0;
    for (std::size_t i = 0; i < memory_.slots(pool); ++i) {
      if (memory_.meta(handle_of(pool, static_cast<std::uint16_t>(i))).state == state) ++count;
    }
    return count;
  }
  std::string last_loss() const {
    for (auto it = events_.rbegin(); it != events_.rend(); ++it) {
      if (it->kind == NodeEventKind::lost) return it->reason;
    }
    return "";
  }

  static std::string run_dir_;
  ShmPortOptions options_;
  PacketMemory memory_;
  std::optional<emu::ClockWriter> clock_;
  std::unique_ptr<ShmPort> port_;
  Inbox inbox_;
  std::vector<NodeEvent> events_;
  std::deque<PacketHandle> held_;
  bool hold_ = false;
  std::uint64_t host_ns_ = 1'000'000'000;
  emu::Cycle now_ = 1000;
};
std::string ShmPortTest::run_dir_;

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
  b->end_sleep();
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

TEST_F(ShmPortTest, SleepersAreWokenAndOnlySleepers) {
  auto n0 = attach("n0");
  auto n1 = attach("n1");
  auto readable = [](int fd) { return *emu::wait_readable(fd, 0); };
  auto drain_control = [&] {
    n0->end_sleep();
    n1->end_sleep();
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
  port_->end_sleep();
  turn();
  EXPECT_TRUE(readable(n1->fd()));
  n1->end_sleep();
  EXPECT_EQ(receive(*n1).size(), 1U);
  EXPECT_FALSE(readable(n1->fd()));
  EXPECT_EQ(port_->counters(1).wakeups, 1U);
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

// --- peers that lie ---------------------------------------------------------------------------

// A node that speaks the protocol by hand, so that it can say anything.
class RawNode {
 public:
  explicit RawNode(const std::string& run_dir, const std::string& name) {
    socket_ = std::move(*emu::connect_unix(run_dir + "/fabric.sock", true));
    emu::ShmHello hello{};
    hello.magic = emu::kShmMagic;
    hello.version = emu::kMessageVersion;
    hello.type = emu::ShmMessageType::hello;
    name.copy(hello.node_name, emu::kNodeNameBytes - 1);
    (void)emu::send_message(socket_.get(), std::as_bytes(std::span(&hello, 1)));
  }
  void welcomed() {
    std::array<std::byte, 512> buffer;
    auto message = emu::receive_message(socket_.get(), buffer);
    ASSERT_TRUE(message);
    ASSERT_EQ(message->fd_count, emu::kWelcomeFds);
    rings_ = emu::shm_rings(kSlots);
    region_ = std::move(
        *emu::Region::map(std::move(message->fds[0]), rings_.bytes, emu::Access::read_write));
    tx_ = emu::RingProducer(emu::RingView<emu::TxDesc>(at(rings_.tx), rings_.tx_capacity));
    rx_free_ =
        emu::RingProducer(emu::RingView<emu::Free>(at(rings_.rx_free), emu::kRxFreeCapacity));
  }
  std::byte* at(std::uint64_t offset) const { return region_.data() + offset; }

  emu::UniqueFd socket_;
  emu::Region region_;
  emu::ShmRings rings_;
  emu::RingProducer<emu::TxDesc> tx_;
  emu::RingProducer<emu::Free> rx_free_;
};

TEST_F(ShmPortTest, EveryWrongDescriptorDetachesItsSenderOnly) {
  auto n1 = attach("n1");
  const auto good = desc(0, 1, 1);
  std::map<std::string, emu::TxDesc> wrong;
  auto vary = [&](const char* name, auto change) {
    wrong[name] = good;
    change(wrong[name]);
  };
  vary("buffer", [](auto& d) { d.buffer = kSlots; });
  vary("buffer far", [](auto& d) { d.buffer = 0xffffffff; });
  vary("buffer high half", [](auto& d) { d.buffer = 0x10000; });
  vary("length zero", [](auto& d) { d.length = 0; });
  vary("length long", [](auto& d) { d.length = emu::kPacketBytesMax + 1; });
  vary("flits zero", [](auto& d) { d.flits = 0; });
  vary("flits many", [](auto& d) { d.flits = 0xffff; });
  vary("flits few", [](auto& d) { d.flits = 39; });
  vary("dest", [](auto& d) { d.dest = 3; });
  vary("vl_in range", [](auto& d) { d.vl_in = 16; });
  vary("vl_in class", [](auto& d) { d.vl_in = 4; });
  vary("vl_out class", [](auto& d) { d.vl_out = 15; });
  vary("class", [](auto& d) { d.traffic_class = static_cast<emu::TrafficClass>(3); });
  vary("kind", [](auto& d) { d.kind = static_cast<emu::PacketKind>(3); });
  vary("probe class", [](auto& d) { d.kind = emu::PacketKind::probe; });
  vary("launch", [](auto& d) { d.launch_cycle = emu::kNever; });
  for (const auto& [name, bad] : wrong) {
    SCOPED_TRACE(name);
    RawNode liar(run_dir_, "n0");
    turn();
    turn();
    liar.welcomed();
    ASSERT_TRUE(port_->attached(0));
    liar.tx_.push(good);
    liar.tx_.push(bad);
    turn();
    turn();
    EXPECT_FALSE(port_->attached(0));
    EXPECT_NE(last_loss().find("wrong"), std::string::npos) << last_loss();
    EXPECT_TRUE(port_->attached(1));
    receive(*n1);
    turn();
    turn();
    EXPECT_EQ(memory_.pools().size(), 1U);
  }
}

TEST_F(ShmPortTest, ABufferSentTwiceOrReleasedWithoutBeingHeldDetaches) {
  for (const bool twice : {true, false}) {
    RawNode liar(run_dir_, "n0");
    turn();
    turn();
    liar.welcomed();
    hold_ = true;
    if (twice) {
      liar.tx_.push(desc(7, 1, 1));
      liar.tx_.push(desc(7, 1, 1));
    } else {
      liar.rx_free_.push({handle_of(memory_.pools()[0], 3)});
    }
    turn();
    turn();
    EXPECT_FALSE(port_->attached(0));
    hold_ = false;
    while (!held_.empty()) {
      arrive(held_.front());
      held_.pop_front();
    }
    turn();
    turn();
    EXPECT_EQ(memory_.pools().size(), 0U);
  }
}

TEST_F(ShmPortTest, RandomBytesAllOverTheRingsNeverReachTheOthers) {
  const std::uint64_t seed = 7;
  SCOPED_TRACE(seed);
  emu::Prng prng(seed);
  auto n1 = attach("n1");
  auto n2 = attach("n2");
  for (int round = 0; round < 200; ++round) {
    RawNode liar(run_dir_, "n0");
    turn();
    turn();
    liar.welcomed();
    auto* words = reinterpret_cast<std::uint64_t*>(liar.region_.data());
    const auto count = static_cast<std::uint32_t>(liar.region_.size() / 8);
    const std::uint32_t scribbles = 1 + prng.below(64);
    for (std::uint32_t i = 0; i < scribbles; ++i) {
      // Half of them at the indices, which stand at the front of each ring.
      const std::uint64_t rings[] = {liar.rings_.tx, liar.rings_.rx_free, liar.rings_.rx,
                                     liar.rings_.tx_free, liar.rings_.injected};
      const std::uint64_t value = prng.below(2) == 0 ? prng() : prng.below(300);
      if (prng.below(2) == 0) {
        words[(rings[prng.below(5)] + 64 * prng.below(2)) / 8] = value;
      } else {
        words[prng.below(count)] = value;
      }
    }
    const auto cookie = static_cast<std::uint64_t>(round);
    send(*n1, 2, cookie);
    n1->flush();
    for (int i = 0; i < 3; ++i) turn();
    n1->service(host_ns_);  // reads what it is told about pools
    n2->service(host_ns_);
    auto got = receive(*n2);
    EXPECT_NE(std::find(got.begin(), got.end(), cookie), got.end());
    receive(*n1);
    ASSERT_TRUE(port_->attached(1) && port_->attached(2)) << last_loss();
  }
}

TEST_F(ShmPortTest, GarbageOnTheSocketIsRefused) {
  auto n1 = attach("n1");
  const std::uint64_t seed = 11;
  emu::Prng prng(seed);
  for (int i = 0; i < 300; ++i) {
    auto socket = emu::connect_unix(run_dir_ + "/fabric.sock", true);
    ASSERT_TRUE(socket);
    std::vector<std::byte> bytes(1 + prng.below(200));
    for (auto& b : bytes) b = static_cast<std::byte>(prng.below(256));
    if (bytes.size() >= 4 && prng.below(2) == 0) {
      std::memcpy(bytes.data(), &emu::kShmMagic, 4);
    }
    (void)emu::send_message(socket->get(), bytes);
    turn();
  }
  EXPECT_TRUE(port_->attached(1));
  EXPECT_FALSE(port_->attached(0));
}

TEST_F(ShmPortTest, ConnectionsThatSayNothingAreDroppedAfterAWhile) {
  std::vector<emu::UniqueFd> silent;
  for (int i = 0; i < 64; ++i)
    silent.push_back(std::move(*emu::connect_unix(run_dir_ + "/fabric.sock", true)));
  turn();
  host_ns_ += 3'000'000'000;
  turn();
  turn();
  auto n0 = attach("n0");
  EXPECT_EQ(n0->state(), hca::AttachState::attached) << n0->reason();
}

}  // namespace
}  // namespace fabric
