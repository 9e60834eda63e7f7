// Both ends of the UDP attachment over loopback, a fabric of no time in between, and in the way, if
// asked, a proxy that loses, repeats, reorders, corrupts and replays. Host time is handed in.
#include "fabric/port/udp.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/socket.h>

#include <cstring>
#include <deque>
#include <filesystem>

#include "emu/base/prng.h"
#include "fabric/daemon/eal.h"
#include "hca/attach/udp.h"
#include "tests/unit/emu/wire/seed.h"
#include "tests/unit/random_bytes.h"

namespace fabric {
namespace {

constexpr std::uint64_t kTurnNs = 500'000;
constexpr std::size_t kNodes = 3;

emu::Key key_of(std::uint8_t n) {
  emu::Key key{};
  key[0] = n;
  return key;
}

emu::UdpSocket open_loopback() {
  return emu::UdpSocket(*emu::open_udp_socket(*emu::UdpAddress::resolve("127.0.0.1:0")));
}

// Stands between one node and the fabric.
class Proxy {
 public:
  Proxy(emu::UdpAddress fabric, std::uint64_t seed)
      : fabric_(fabric), prng_(seed), front_(open_loopback()), back_(open_loopback()) {}
  std::string address() const { return emu::local_address(front_.fd())->text(); }
  void set_loss(double loss) { loss_ = loss; }
  void set_bytes_max(std::size_t bytes) { bytes_max_ = bytes; }

  void turn() {
    while (front_.receive([this](const emu::UdpAddress& from, std::span<const std::byte> d) {
      node_ = from;
      toss(d, true);
    })) {
    }
    while (back_.receive(
        [this](const emu::UdpAddress&, std::span<const std::byte> d) { toss(d, false); })) {
    }
    while (!held_.empty() && prng_.below(3) != 0) {
      forward(held_.front());
      held_.pop_front();
    }
  }

 private:
  struct Datagram {
    std::vector<std::byte> bytes;
    bool up;
  };
  void toss(std::span<const std::byte> bytes, bool up) {
    Datagram datagram{{bytes.begin(), bytes.end()}, up};
    if (bytes.size() > bytes_max_ || prng_.uniform() < loss_) return;
    if (past_.size() < 2000) past_.push_back(datagram);
    if (prng_.uniform() < loss_) held_.push_back(datagram);  // late, or twice
    if (prng_.uniform() < loss_) forward(past_[prng_.below(static_cast<unsigned>(past_.size()))]);
    if (prng_.uniform() < loss_) {
      Datagram bad = datagram;
      bad.bytes[prng_.below(static_cast<unsigned>(bad.bytes.size()))] ^= std::byte{4};
      forward(bad);
    }
    forward(datagram);
  }
  void forward(const Datagram& datagram) {
    emu::UdpSocket& by = datagram.up ? back_ : front_;
    const emu::UdpSocket::Outgoing out{datagram.up ? fabric_ : node_,
                                       {datagram.bytes, datagram.bytes.size()}};
    by.send({&out, 1});
  }

  emu::UdpAddress fabric_;
  emu::UdpAddress node_;
  emu::Prng prng_;
  emu::UdpSocket front_;
  emu::UdpSocket back_;
  double loss_ = 0;
  std::size_t bytes_max_ = 65'536;
  std::deque<Datagram> held_;
  std::vector<Datagram> past_;
};

class UdpPortTest : public testing::TestWithParam<bool> {
 protected:
  static void SetUpTestSuite() {
    std::string directory = testing::TempDir() + "flitnet-udp-XXXXXX";
    ASSERT_NE(::mkdtemp(directory.data()), nullptr);
    run_dir_ = directory;
    auto started = start_eal({run_dir_, "", 64});
    ASSERT_TRUE(started) << started.error().message;
  }
  static void TearDownTestSuite() {
    stop_eal();
    std::filesystem::remove_all(run_dir_);
  }

  void SetUp() override { open_port("127.0.0.1:0"); }
  void open_port(const std::string& listen) {
    UdpPortOptions options;
    options.listen = listen;
    options.session.cluster_key = key_of(1);
    options.session.slots_per_node = 512;
    EdgeRules& rules = options.session.rules;
    rules.node_count = kNodes;
    rules.node_names = {"n0", "n1", "n2"};
    rules.lanes_of_class[0] = 0x8000;
    rules.lanes_of_class[1] = 0x7ff0;
    rules.lanes_of_class[2] = 0x000f;
    rules.horizon_cycles = 1'000'000;
    auto port = UdpPort::open(options, memory_);
    ASSERT_TRUE(port) << port.error().message;
    port_ = std::move(*port);
  }
  std::unique_ptr<hca::Attachment> make(const std::string& name, const std::string& fabric,
                                        std::uint8_t key = 1) {
    auto attachment = hca::make_udp_attachment(
        {.fabric = fabric, .node_name = name, .cluster_key = key_of(key), .io_uring = GetParam()});
    EXPECT_TRUE(attachment) << attachment.error().message;
    return std::move(*attachment);
  }
  hca::Attachment& attach(std::size_t node) {
    nodes_[node] = make(fmt::format("n{}", node), port_->address().text());
    turns(20);
    return *nodes_[node];
  }
  void turns(int count) {
    for (int i = 0; i < count; ++i) turn();
  }
  void turn() {
    host_ns_ += kTurnNs;
    for (auto& node : nodes_) {
      if (node) node->service(host_ns_);
      if (node) node->flush();
    }
    if (proxy_) proxy_->turn();
    if (port_) fabric_turn();
  }
  // A fabric in which everything arrives at once.
  void fabric_turn() {
    port_->service(host_ns_, inbox_);
    port_->receive(now_, inbox_);
    for (const PacketHandle packet : inbox_.packets) pass(packet);
    inbox_.packets.clear();
    for (auto& event : inbox_.events) events_.push_back(event);
    inbox_.events.clear();
    port_->flush(now_);
    now_ += kTurnNs * 1000 / 320'000;
  }
  void pass(PacketHandle packet) {
    const PacketMeta meta = memory_.meta(packet);
    if (port_->attached(meta.source)) {
      port_->injected(meta.source,
                      {meta.cookie, now_, meta.flits, meta.traffic_class, meta.kind, 0});
    }
    if (!port_->attached(meta.dest)) return memory_.release(packet);
    port_->deliver(meta.dest, packet,
                   {now_, now_ + 40, 0, meta.length, meta.flits, meta.source, meta.vl_out,
                    meta.traffic_class, 0});
  }
  bool send(hca::Attachment& from, emu::NodeId dest, std::uint64_t cookie,
            std::uint16_t length = 638, emu::Vl vl = 2) {
    auto slot = from.acquire();
    if (!slot) return false;
    std::memset(slot->bytes, static_cast<int>(cookie & 0xff), length);
    std::memcpy(slot->bytes, &cookie, sizeof cookie);
    const emu::TxDesc desc{cookie, 0,    slot->buffer, 0,  length,
                           300,    dest, vl,           vl, emu::TrafficClass::best_effort,
                           {},     0};
    return from.send({&desc, 1}) == 1;
  }
  // Takes what has arrived: the cookies must go on from `next`.
  void receive(hca::Attachment& at, std::uint64_t& next) {
    std::array<hca::Received, 32> got;
    while (const std::size_t count = at.receive(got)) {
      for (std::size_t i = 0; i < count; ++i) {
        std::uint64_t cookie;
        std::memcpy(&cookie, got[i].bytes, sizeof cookie);
        ASSERT_EQ(cookie, next++);
        ASSERT_EQ(got[i].bytes[got[i].desc.length - 1], cookie & 0xff);
        at.release(got[i].desc.buffer);
      }
    }
  }
  std::uint64_t count_injected(hca::Attachment& at) {
    std::array<emu::Injected, 64> events;
    std::uint64_t count = 0;
    while (const std::size_t n = at.injected(events)) count += n;
    return count;
  }
  std::string last_loss() const {
    for (auto it = events_.rbegin(); it != events_.rend(); ++it) {
      if (it->kind == NodeEventKind::lost) return it->reason;
    }
    return "";
  }

  static std::string run_dir_;
  PacketMemory memory_;
  std::unique_ptr<UdpPort> port_;
  std::array<std::unique_ptr<hca::Attachment>, kNodes> nodes_;
  std::optional<Proxy> proxy_;
  Inbox inbox_;
  std::vector<NodeEvent> events_;
  std::uint64_t host_ns_ = 1'000'000'000;
  emu::Cycle now_ = 1000;
};
std::string UdpPortTest::run_dir_;

TEST_P(UdpPortTest, PacketsEventsAnswersAndTimeCross) {
  hca::Attachment& n0 = attach(0);
  hca::Attachment& n1 = attach(1);
  ASSERT_EQ(n0.state(), hca::AttachState::attached) << n0.reason();
  ASSERT_EQ(n1.state(), hca::AttachState::attached) << n1.reason();
  EXPECT_EQ(n0.session(), 1U);
  EXPECT_EQ(n1.info().node, 1);
  EXPECT_EQ(n1.info().cycle_time.cycle_ps, 320'000U);
  std::uint64_t sent = 0;
  std::uint64_t next = 0;
  std::uint64_t injected = 0;
  for (int i = 0; i < 300; ++i) {
    while (sent < 20'000 &&
           send(n0, 1, sent, sent % 7 == 0 ? 4300 : static_cast<std::uint16_t>(100 + sent % 600))) {
      ++sent;
    }
    turn();
    ASSERT_NO_FATAL_FAILURE(receive(n1, next));
    injected += count_injected(n0);
  }
  EXPECT_EQ(sent, 20'000U);
  EXPECT_EQ(next, sent);
  EXPECT_EQ(injected, sent);
  EXPECT_EQ(port_->counters(0).packets_in, sent);
  EXPECT_EQ(port_->counters(1).packets_out, sent);
  port_->answer(0, {77, 5, 3, emu::Verdict::nack, {}});
  turns(2);
  std::array<emu::Answer, 4> answers;
  ASSERT_EQ(n0.answers(answers), 1U);
  EXPECT_EQ(answers[0].connection, 77U);
  EXPECT_EQ(answers[0].rejected_by, 3);
  EXPECT_LE(n0.now_cycle(), now_ + 2 * kTurnNs / 320);
  EXPECT_GE(n0.now_cycle() + 10 * kTurnNs / 320, now_);
}

TEST_P(UdpPortTest, ARecordWithoutMeaningEndsTheSession) {
  hca::Attachment& n0 = attach(0);
  port_->answer(0, {7, 5, emu::kNoRouter, emu::Verdict::again, {}});
  port_->answer(0, {8, 5, emu::kNoRouter, static_cast<emu::Verdict>(3), {}});
  port_->answer(0, {9, 5, emu::kNoRouter, emu::Verdict::ack, {}});
  fabric_turn();
  host_ns_ += kTurnNs;
  ASSERT_EQ(n0.service(host_ns_), hca::AttachState::down);
  EXPECT_NE(n0.reason().find("makes no sense"), std::string::npos) << n0.reason();
  turns(20);
  EXPECT_EQ(n0.state(), hca::AttachState::attached) << n0.reason();
  EXPECT_EQ(n0.session(), 2U);
  std::array<emu::Answer, 4> answers;
  EXPECT_EQ(n0.answers(answers), 0U) << "nothing of the last session";
  port_->answer(0, {10, 5, emu::kNoRouter, emu::Verdict::again, {}});
  turns(2);
  ASSERT_EQ(n0.answers(answers), 1U);
  EXPECT_EQ(answers[0].connection, 10U);
}

TEST_P(UdpPortTest, ABadPathLosesNothing) {
  const std::uint64_t seed = emu::test_seed();
  proxy_.emplace(port_->address(), seed);
  proxy_->set_loss(0.05);
  nodes_[0] = make("n0", proxy_->address());
  hca::Attachment& n1 = attach(1);
  turns(600);
  hca::Attachment& n0 = *nodes_[0];
  ASSERT_EQ(n0.state(), hca::AttachState::attached) << n0.reason() << " seed " << seed;
  std::uint64_t sent[2] = {};
  std::uint64_t next[2] = {};
  for (int i = 0; i < 20'000 && (next[0] < 3000 || next[1] < 3000); ++i) {
    while (sent[0] < 3000 && send(n0, 1, sent[0])) ++sent[0];
    while (sent[1] < 3000 && send(n1, 0, sent[1])) ++sent[1];
    turn();
    ASSERT_NO_FATAL_FAILURE(receive(n1, next[0]));
    ASSERT_NO_FATAL_FAILURE(receive(n0, next[1]));
  }
  EXPECT_EQ(next[0], 3000U) << "seed " << seed;
  EXPECT_EQ(next[1], 3000U) << "seed " << seed;
  EXPECT_EQ(n0.session(), 1U);
}

TEST_P(UdpPortTest, APathOfASmallerMtuIsNamedAndWorks) {
  proxy_.emplace(port_->address(), 1);
  proxy_->set_bytes_max(600);
  nodes_[0] = make("n0", proxy_->address());
  hca::Attachment& n1 = attach(1);
  turns(600);
  hca::Attachment& n0 = *nodes_[0];
  ASSERT_TRUE(send(n0, 1, 0, 4000)) << n0.reason();
  std::string reason;
  for (int i = 0; i < 10'000 && n0.session() == 1; ++i) {
    turn();
    if (n0.state() == hca::AttachState::down) reason = n0.reason();
  }
  EXPECT_NE(reason.find("do not arrive: attach.mtu"), std::string::npos) << reason;
  ASSERT_EQ(n0.session(), 2U);
  std::uint64_t next = 7;  // what was lost with the session is the sender's affair
  ASSERT_TRUE(send(n0, 1, 7, 4000));
  turns(200);
  ASSERT_NO_FATAL_FAILURE(receive(n1, next));
  EXPECT_EQ(next, 8U);
}

TEST_P(UdpPortTest, StrangersDisturbNobody) {
  const std::uint64_t seed = emu::test_seed();
  emu::Prng prng(seed);
  hca::Attachment& n0 = attach(0);
  hca::Attachment& n1 = attach(1);
  auto thief = make("n2", port_->address().text(), 2);  // has not the cluster's key
  emu::UdpSocket stranger = open_loopback();
  std::vector<std::byte> bytes;
  std::uint64_t sent = 0;
  std::uint64_t next = 0;
  for (int i = 0; i < 400; ++i) {
    for (int k = 0; k < 20; ++k) {
      bytes.resize(prng.below(3000));
      test::fill_at_random(prng, bytes);
      if (bytes.size() > 8 && prng.below(2) == 0) {
        const std::uint32_t magic = emu::kFrameMagic;
        std::memcpy(bytes.data(), &magic, sizeof magic);
        bytes[4] = std::byte{1};
        bytes[5] = static_cast<std::byte>(prng.below(6));
      }
      const emu::UdpSocket::Outgoing out{port_->address(),
                                         {bytes, std::max<std::size_t>(bytes.size(), 1)}};
      stranger.send({&out, 1});
    }
    thief->service(host_ns_);
    if (send(n0, 1, sent)) ++sent;
    turn();
    ASSERT_NO_FATAL_FAILURE(receive(n1, next));
  }
  EXPECT_EQ(next, sent);
  EXPECT_EQ(sent, 400U);
  EXPECT_FALSE(port_->attached(2));
  EXPECT_EQ(thief->state(), hca::AttachState::down);
  EXPECT_NE(thief->reason().find("key"), std::string::npos) << thief->reason();
  EXPECT_GT(port_->sessions().strangers(), 4000U) << "seed " << seed;
}

TEST_P(UdpPortTest, ANodeThatFallsSilentIsLostAndMayComeBack) {
  attach(0);
  attach(1);
  const auto dead = std::move(nodes_[1]);  // alive but never called again: as good as killed
  turns(1000);                             // 500 ms
  EXPECT_TRUE(port_->attached(1));
  turns(500);
  EXPECT_FALSE(port_->attached(1));
  EXPECT_NE(last_loss().find("silent"), std::string::npos) << last_loss();
  EXPECT_TRUE(port_->attached(0));
  EXPECT_EQ(attach(1).state(), hca::AttachState::attached);
  nodes_[1].reset();  // says goodbye
  turns(2);
  EXPECT_FALSE(port_->attached(1));
  EXPECT_EQ(last_loss(), "left");
}

TEST_P(UdpPortTest, ANewFabricIsJoinedAgain) {
  hca::Attachment& n0 = attach(0);
  const std::string address = port_->address().text();
  const emu::Cycle stood = n0.now_cycle();
  for (std::uint64_t i = 0; i < 100; ++i) ASSERT_TRUE(send(n0, 0, i));
  port_.reset();
  open_port(address);
  turns(1000);
  ASSERT_EQ(n0.state(), hca::AttachState::attached) << n0.reason();
  EXPECT_EQ(n0.session(), 2U);
  EXPECT_GE(n0.now_cycle(), stood);
  std::uint64_t next = 500;
  ASSERT_TRUE(send(n0, 0, 500));
  turns(4);
  ASSERT_NO_FATAL_FAILURE(receive(n0, next)) << "nothing of the last session";
  EXPECT_EQ(next, 501U);
}

// Its clock was lost with its run directory: the time of a node that outlived it goes on.
TEST_P(UdpPortTest, TimeOfANodeGoesOnWithAFabricWhoseTimeBeganAnew) {
  hca::Attachment& n0 = attach(0);
  now_ = 1'000'000'000;
  turns(20);
  const emu::Cycle before = n0.now_cycle();
  EXPECT_GE(before, 1'000'000'000U);
  const std::string address = port_->address().text();
  port_.reset();
  turns(10);
  now_ = 500;
  open_port(address);
  turns(4000);
  ASSERT_EQ(n0.state(), hca::AttachState::attached) << n0.reason();
  const emu::Cycle then = n0.now_cycle();
  turns(100);
  EXPECT_GT(then, before);
  EXPECT_GT(n0.now_cycle(), then + 100'000);
  // A launch that is soon by the node's time is soon by the fabric's.
  auto slot = n0.acquire();
  ASSERT_TRUE(slot);
  const emu::TxDesc desc{1, n0.now_cycle() + 1000,          slot->buffer, 0, 638, 300, 0, 2,
                         2, emu::TrafficClass::best_effort, {},           0};
  ASSERT_EQ(n0.send({&desc, 1}), 1U);
  turns(20);
  EXPECT_EQ(last_loss(), "");
  std::array<emu::Injected, 4> events;
  ASSERT_EQ(n0.injected(events), 1U);
  EXPECT_GT(events[0].tail_cycle, then);
}

// The last service() was long ago, and so would be what is sent if it had its time.
TEST_P(UdpPortTest, WhatIsSentAfterIdlingIsSentOnce) {
  hca::Attachment& n0 = attach(0);
  std::array<emu::Answer, 4> answers;
  for (int i = 0; i < 50; ++i) {  // the round trip becomes known
    port_->answer(0, {7, 5, emu::kNoRouter, emu::Verdict::ack, {}});
    turn();
  }
  turns(50);
  while (n0.answers(answers) != 0) {
  }
  ASSERT_EQ(port_->counters(0).frames.frames_repeated, 0U);
  host_ns_ += 15'000'000;
  port_->begin_turn(host_ns_);
  port_->receive(now_, inbox_);
  port_->answer(0, {8, 5, emu::kNoRouter, emu::Verdict::ack, {}});
  port_->flush(now_);
  port_->service(host_ns_, inbox_);
  port_->flush(now_);
  turns(4);
  EXPECT_EQ(n0.answers(answers), 1U);
  EXPECT_EQ(port_->counters(0).frames.frames_repeated, 0U);
  EXPECT_EQ(n0.frames().frames_duplicate, 0U);
}

TEST_P(UdpPortTest, ALiarIsDetachedByName) {
  hca::Attachment& n0 = attach(0);
  attach(1);
  ASSERT_TRUE(send(n0, 1, 1, 638, 9));  // best effort on a real-time lane
  turns(4);
  EXPECT_EQ(last_loss(), "sent a packet with a wrong vl_in");
  EXPECT_EQ(port_->counters(0).violations, 1U);
  EXPECT_TRUE(port_->attached(1));
}

TEST_P(UdpPortTest, ANodeThatTakesNothingStopsNobodyElse) {
  hca::Attachment& n0 = attach(0);
  hca::Attachment& n1 = attach(1);
  hca::Attachment& n2 = attach(2);
  std::uint64_t to1 = 0;
  std::uint64_t to2 = 0;
  std::uint64_t next = 0;
  for (int i = 0; i < 300; ++i) {
    while (send(n2, 1, to1)) ++to1;  // n1 never calls receive()
    if (send(n0, 2, to2)) ++to2;
    turn();
    ASSERT_NO_FATAL_FAILURE(receive(n2, next));
  }
  EXPECT_EQ(next, to2);
  EXPECT_EQ(to2, 300U);
  // Slots at both nodes, four windows of 1024 frames, the pool.
  EXPECT_LT(to1, 14'000U) << "back-pressure reaches the sender";
  EXPECT_GT(to1, 2000U);
  turns(6500);  // 3.2 s
  EXPECT_EQ(last_loss(), "does not take its packets");
  EXPECT_TRUE(port_->attached(0));
  (void)n1;
}

INSTANTIATE_TEST_SUITE_P(Ways, UdpPortTest, testing::Bool(), [](const auto& way) {
  return way.param ? std::string("io_uring") : std::string("socket");
});

}  // namespace
}  // namespace fabric
