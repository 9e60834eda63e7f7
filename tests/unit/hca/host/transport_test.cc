// RC and UD between two Hosts: what arrives, and that it arrives once and in order whatever the
// link does.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "tests/unit/hca/host/pair.h"
#include "tests/unit/sanitized.h"

namespace {

using hca::WcOpcode;
using hca::WcStatus;
using hca::WrOpcode;
using test::Pair;
using test::PairOptions;

// A SEND fills the receive buffer, completes on both sides, and says how long it was.
TEST(Rc, SendArrives) {
  Pair pair;
  pair.expect_recv(9, pair.b.sge(0, 4000));
  const hca::Sge from = pair.a.sge(100, 3000);
  ASSERT_EQ(pair.post({.wr_id = 5, .sges = {&from, 1}}), 0);
  const auto [sent, received] = pair.run();
  ASSERT_EQ(sent.size(), 1u);
  ASSERT_EQ(received.size(), 1u);
  EXPECT_EQ(sent[0].status, WcStatus::success);
  EXPECT_EQ(sent[0].wr_id, 5u);
  EXPECT_EQ(received[0].opcode, WcOpcode::recv);
  EXPECT_EQ(received[0].wr_id, 9u);
  EXPECT_EQ(received[0].byte_len, 3000u);
  EXPECT_EQ(received[0].src_qp, pair.a.qp.number);
  EXPECT_GT(received[0].timestamp_ns, received[0].head_ns);
  EXPECT_EQ(std::memcmp(pair.b.bytes.data(), pair.a.bytes.data() + 100, 3000), 0);
  EXPECT_TRUE(pair.cluster.host(0).idle());
}

// A full packet is a worm of exactly 40 flits, a message of k payloads is k packets (papers: 40
// flits).
TEST(Rc, PacketsAreWormsOfFortyFlits) {
  Pair pair;
  pair.expect_recv(1, pair.b.sge(0, 100000));
  const hca::Sge from = pair.a.sge(0, 612 * 5);
  ASSERT_EQ(pair.post({.sges = {&from, 1}}), 0);
  pair.run();
  std::vector<std::uint16_t> flits;
  for (const emu::TxDesc& desc : pair.cluster.sent()) flits.push_back(desc.flits);
  EXPECT_EQ(flits, (std::vector<std::uint16_t>{40, 40, 40, 40, 40, 2}));  // and one ACK
}

// Immediate data comes out as it went in, solicited wakes an armed CQ, unsignaled says nothing.
TEST(Rc, ImmediateSolicitedUnsignaled) {
  Pair pair;
  pair.b.cq.page->armed.store(hca::kCqArmedSolicited);
  for (int i = 0; i < 3; ++i) pair.expect_recv(10 + static_cast<unsigned>(i), pair.b.sge(0, 64));
  const hca::Sge from = pair.a.sge(0, 64);
  ASSERT_EQ(
      pair.post({.opcode = WrOpcode::send_imm, .flags = 0, .sges = {&from, 1}, .imm = 0x11223344}),
      0);
  auto [sent, received] = pair.run();
  EXPECT_TRUE(sent.empty());
  ASSERT_EQ(received.size(), 1u);
  EXPECT_EQ(received[0].imm, 0x11223344u);
  EXPECT_EQ(received[0].wc_flags & hca::kWcWithImm, hca::kWcWithImm);
  EXPECT_EQ(pair.cluster.told(1).completions, 0u);
  ASSERT_EQ(pair.post({.flags = hca::kWqeSolicited, .sges = {&from, 1}}), 0);
  pair.run();
  EXPECT_EQ(pair.cluster.told(1).completions, 1u);
  EXPECT_EQ(pair.b.cq.page->armed.load(), hca::kCqDisarmed);
}

// RDMA WRITE changes the remote bytes and tells nobody; with immediate it takes a receive.
TEST(Rc, WriteAndWriteImm) {
  Pair pair;
  const hca::Sge from[] = {pair.a.sge(0, 1000), pair.a.sge(5000, 1), pair.a.sge(7000, 3000)};
  ASSERT_EQ(pair.post({.opcode = WrOpcode::rdma_write,
                       .sges = from,
                       .remote_addr = pair.b.address(50),
                       .rkey = pair.b.keys.rkey}),
            0);
  auto [sent, received] = pair.run();
  ASSERT_EQ(test::statuses(sent), std::vector{WcStatus::success});
  EXPECT_TRUE(received.empty());
  EXPECT_EQ(std::memcmp(&pair.b.bytes[50], &pair.a.bytes[0], 1000), 0);
  EXPECT_EQ(pair.b.bytes[1050], pair.a.bytes[5000]);
  EXPECT_EQ(std::memcmp(&pair.b.bytes[1051], &pair.a.bytes[7000], 3000), 0);

  EXPECT_EQ(pair.b.app->post_recv(pair.b.qp, 3, {}), 0);
  ASSERT_EQ(pair.post({.opcode = WrOpcode::rdma_write_imm,
                       .sges = from,
                       .remote_addr = pair.b.address(50),
                       .rkey = pair.b.keys.rkey,
                       .imm = 77}),
            0);
  std::tie(sent, received) = pair.run();
  ASSERT_EQ(received.size(), 1u);
  EXPECT_EQ(received[0].opcode, WcOpcode::recv_rdma_with_imm);
  EXPECT_EQ(received[0].imm, 77u);
  EXPECT_EQ(received[0].byte_len, 4001u);
}

// RDMA READ fetches remote bytes into a scatter list; a fenced send waits for it.
TEST(Rc, ReadAndFence) {
  Pair pair;
  for (std::size_t i = 0; i < 100000; ++i) pair.b.bytes[i] = static_cast<std::uint8_t>(i * 7);
  pair.expect_recv(1, pair.b.sge(900000, 64));
  const hca::Sge to[] = {pair.a.sge(0, 10), pair.a.sge(100, 49990)};
  ASSERT_EQ(pair.post({.opcode = WrOpcode::rdma_read,
                       .wr_id = 1,
                       .sges = to,
                       .remote_addr = pair.b.address(3),
                       .rkey = pair.b.keys.rkey}),
            0);
  const hca::Sge from = pair.a.sge(0, 64);
  ASSERT_EQ(
      pair.post({.wr_id = 2, .flags = hca::kWqeSignaled | hca::kWqeFence, .sges = {&from, 1}}), 0);
  const auto [sent, received] = pair.run();
  ASSERT_EQ(test::statuses(sent), (std::vector{WcStatus::success, WcStatus::success}));
  EXPECT_EQ(sent[0].opcode, WcOpcode::rdma_read);
  EXPECT_EQ(sent[0].byte_len, 50000u);
  EXPECT_EQ(std::memcmp(&pair.a.bytes[0], &pair.b.bytes[3], 10), 0);
  EXPECT_EQ(std::memcmp(&pair.a.bytes[100], &pair.b.bytes[13], 49990), 0);
  // The fenced send left with what the READ had brought.
  EXPECT_EQ(std::memcmp(&pair.b.bytes[900000], &pair.a.bytes[0], 64), 0);
}

// A second QP of each side, joined: a's and b's.
std::pair<sim::Queue, sim::Queue> join_others(Pair& pair, const PairOptions& options) {
  const auto make = [&options](test::Side& side) {
    return side.app->make_qp(hca::QpType::rc, side.cq, side.cq, options.capacity);
  };
  const std::pair<sim::Queue, sim::Queue> others{make(pair.a), make(pair.b)};
  sim::Path path = options.path;
  path.dest = 1;
  path.dest_qpn = others.second.number;
  EXPECT_EQ(pair.a.app->connect(others.first, path, pair.cluster.now()), 0);
  path.dest = 0;
  path.dest_qpn = others.first.number;
  EXPECT_EQ(pair.b.app->connect(others.second, path, pair.cluster.now()), 0);
  return others;
}

// A read or write between the first bytes of `to` and what `local` names of `from`.
int post_rdma(test::Side& from, sim::Queue& queue, WrOpcode opcode, const hca::Sge& local,
              test::Side& to) {
  return from.app->post(
      queue,
      {.opcode = opcode, .sges = {&local, 1}, .remote_addr = to.address(0), .rkey = to.keys.rkey});
}

// Buffers that come back packet by packet once went all to the QP whose turn it was when they ran
// out: others of the node stood in the middle of a message until their timers had run out.
TEST(Rc, QpsTakeTurnsWhereBuffersAreFew) {
  constexpr int kMessages = 8;
  for (const std::uint32_t slots : {1u, 3u, 20u}) {
    PairOptions options;
    options.link.slots = slots;
    Pair pair(options);
    test::Side& a = pair.a;
    sim::Queue other = join_others(pair, options).first;
    const hca::Sge from = a.sge(0, 50'000);
    for (sim::Queue* queue : {&a.qp, &other}) {
      for (int i = 0; i < kMessages; ++i) {
        ASSERT_EQ(post_rdma(a, *queue, WrOpcode::rdma_write, from, pair.b), 0);
      }
    }
    a.app->ring(pair.cluster.now());
    const auto [sent, received] = pair.run();
    ASSERT_EQ(test::statuses(sent), std::vector(2 * kMessages, WcStatus::success));
    int ahead = 0;  // messages of the one that are done and have no equal of the other
    for (const hca::Cqe& cqe : sent) {
      ahead += cqe.qp_num == other.number ? -1 : 1;
      EXPECT_LE(std::abs(ahead), 1) << slots << " buffers";
    }
  }
}

// Whoever is read from has always something to send, and once sent that first: what the node itself
// asked for stood still until the reader was done or its own timers had run out.
TEST(Rc, ReadsTakeTurnsWithRequests) {
  constexpr int kMessages = 8;
  for (const std::uint32_t slots : {1u, 3u, 20u}) {
    PairOptions options;
    options.link.slots = slots;
    Pair pair(options);
    test::Side& a = pair.a;
    test::Side& b = pair.b;
    sim::Queue other = join_others(pair, options).first;
    const hca::Sge from = a.sge(0, 50'000);
    const hca::Sge into = b.sge(50'000, 50'000);
    for (int i = 0; i < kMessages; ++i) {
      ASSERT_EQ(post_rdma(b, b.qp, WrOpcode::rdma_read, into, a), 0);
      ASSERT_EQ(post_rdma(a, other, WrOpcode::rdma_write, from, b), 0);
    }
    b.app->ring(pair.cluster.now());
    a.app->ring(pair.cluster.now());
    const auto [written, read] = pair.run();
    ASSERT_EQ(test::statuses(written), std::vector(kMessages, WcStatus::success));
    ASSERT_EQ(test::statuses(read), std::vector(kMessages, WcStatus::success));
    for (int i = 0; i + 2 < kMessages; ++i) {
      EXPECT_LT(written[i].timestamp_ns, read[i + 2].timestamp_ns) << slots << " buffers";
      EXPECT_LT(read[i].timestamp_ns, written[i + 2].timestamp_ns) << slots << " buffers";
    }
  }
}

// A program that has its last message may end at once: that it came is said even so, when the node
// has a buffer again. The peer once asked a QP that was gone until it gave up.
TEST(Rc, WhatArrivedIsAcknowledgedThoughItsQpEnds) {
  enum class End : std::uint8_t { destroyed, error, reset, program };
  for (const End end : {End::destroyed, End::error, End::reset, End::program}) {
    for (const WrOpcode opcode : {WrOpcode::send, WrOpcode::atomic_fadd, WrOpcode::atomic_write}) {
      PairOptions options;
      options.link.slots = 1;
      options.path.timeout = 12;
      Pair pair(options);
      test::Side& b = pair.b;
      sim::Queue other = join_others(pair, options).second;
      const hca::Sge from = b.sge(0, 50'000);
      ASSERT_EQ(post_rdma(b, other, WrOpcode::rdma_write, from, pair.a), 0);
      b.app->ring(pair.cluster.now());
      pair.expect_recv(1, b.sge(60'000, 100));
      const hca::Sge word = pair.a.sge(60'000, 8);
      const std::size_t lists = opcode == WrOpcode::atomic_write ? 0 : 1;
      ASSERT_EQ(pair.post({.opcode = opcode,
                           .sges = {&word, lists},
                           .remote_addr = b.address(80'000),
                           .rkey = b.keys.rkey,
                           .compare_add = 5,
                           .swap = 5}),
                0);
      const bool is_send = opcode == WrOpcode::send;
      const auto done = [&] { return is_send ? !b.take().empty() : b.bytes[80'000] == 5; };
      while (!done()) pair.cluster.run(pair.cluster.now() + 1);
      ASSERT_TRUE(pair.a.take().empty());
      const emu::Cycle now = pair.cluster.now();
      if (end == End::destroyed) {
        ASSERT_EQ(pair.cluster.host(1).destroy_qp(b.app->client(), b.qp.number), 0);
      } else if (end == End::program) {
        b.app.reset();
      } else {
        const auto to = end == End::error ? hca::QpState::err : hca::QpState::reset;
        ASSERT_EQ(b.app->modify(b.qp, {.state = to}, hca::kQpState, now), 0);
      }
      pair.cluster.run();
      EXPECT_EQ(test::statuses(pair.a.take()), std::vector{WcStatus::success})
          << static_cast<int>(end) << " " << static_cast<int>(opcode);
      EXPECT_EQ(pair.cluster.host(0).counters().timeouts, 0u);
      EXPECT_TRUE(pair.cluster.host(1).idle());
    }
  }
}

// The timer runs out just before the answers come, and the responder has few buffers: what is asked
// for again still waits there when the first new requests come. They are no more than was agreed.
TEST(Rc, RepeatedReadsDoNotCountAsOutstanding) {
  for (const emu::Cycle delay : {450, 650, 850, 870, 890, 910, 1270, 1310}) {
    for (const std::uint32_t slots : {1u, 2u, 3u}) {
      PairOptions options;
      options.link.delay_min = options.link.delay_max = delay;
      options.link.slots = slots;
      options.path.timeout = 6;
      options.path.reads = options.path.reads_served = hca::kMaxRdAtomic;
      Pair pair(options);
      const hca::Sge piece = pair.a.sge(0, 2000);
      for (int i = 0; i < 60; ++i) {
        ASSERT_EQ(pair.post({.opcode = WrOpcode::rdma_read,
                             .flags = hca::kWqeSignaled,
                             .sges = {&piece, 1},
                             .remote_addr = pair.b.address(0),
                             .rkey = pair.b.keys.rkey}),
                  0);
      }
      const auto [sent, received] = pair.run();
      EXPECT_EQ(test::statuses(sent), std::vector(60, WcStatus::success)) << delay << " " << slots;
    }
  }
}

// Inline data is taken at the post: the application may reuse its bytes at once.
TEST(Rc, Inline) {
  Pair pair;
  pair.expect_recv(1, pair.b.sge(0, 64));
  std::uint8_t words[] = {1, 2, 3, 4, 5};
  ASSERT_EQ(pair.a.app->post(pair.a.qp, {.inline_bytes = words}), 0);
  std::memset(words, 0, sizeof words);
  pair.a.app->ring(pair.cluster.now());
  pair.run();
  EXPECT_EQ(pair.b.bytes[4], 5);
}

// A message of no bytes is a message.
TEST(Rc, ZeroLength) {
  Pair pair;
  EXPECT_EQ(pair.b.app->post_recv(pair.b.qp, 3, {}), 0);
  ASSERT_EQ(pair.post({}), 0);
  ASSERT_EQ(pair.post({.opcode = WrOpcode::rdma_write}), 0);
  ASSERT_EQ(pair.post({.opcode = WrOpcode::rdma_read}), 0);
  const auto [sent, received] = pair.run();
  EXPECT_EQ(test::statuses(sent), std::vector(3, WcStatus::success));
  ASSERT_EQ(received.size(), 1u);
  EXPECT_EQ(received[0].byte_len, 0u);
}

// Two QPs of one node talk without the fabric.
TEST(Rc, WithinOneNode) {
  Pair pair(PairOptions{.same_node = true});
  pair.expect_recv(1, pair.b.sge(0, 100000));
  const hca::Sge from = pair.a.sge(0, 100000);
  ASSERT_EQ(pair.post({.sges = {&from, 1}}), 0);
  const auto [sent, received] = pair.run();
  EXPECT_EQ(test::statuses(sent), std::vector{WcStatus::success});
  EXPECT_EQ(std::memcmp(pair.b.bytes.data(), pair.a.bytes.data(), 100000), 0);
  EXPECT_TRUE(pair.cluster.sent().empty());
}

// Packets of a paced message leave at launch + i * span / n, not before and not bunched.
TEST(Rc, LaunchTimes) {
  Pair pair;
  pair.expect_recv(1, pair.b.sge(0, 100000));
  const hca::Sge from = pair.a.sge(0, 612 * 10);
  const std::uint64_t launch_ns = 40'000'000;
  ASSERT_EQ(pair.post({.sges = {&from, 1}, .launch_ns = launch_ns, .launch_span_ns = 33'000'000}),
            0);
  pair.run();
  const emu::CycleTime time;
  for (std::size_t i = 0; i < 10; ++i) {
    const auto want = static_cast<double>(launch_ns + 33'000'000 * i / 10);
    EXPECT_NEAR(static_cast<double>(time.ns(pair.cluster.sent()[i].launch_cycle)), want, 640.0);
  }
}

// PSNs are compared within half their circle. A message of more packets is too long, and a READ
// waits until all of its PSNs find room in that half.
class SmallPackets : public testing::Test {
 protected:
  static PairOptions options() {
    PairOptions options;
    options.host.packet_flits = 4;
    options.host.flit_bits = 128;
    options.link.loss = 1;
    return options;
  }
  // Bytes that nobody ever touches.
  hca::Sge packets(std::uint32_t count) {
    const auto bytes = static_cast<std::uint32_t>(count * pair.a.qp.page->packet_payload.load());
    return {reinterpret_cast<std::uint64_t>(nowhere), bytes, keys.lkey};
  }
  static constexpr std::uint32_t kHalfCircle = 1U << 23;
  Pair pair{options()};
  void* nowhere = reinterpret_cast<void*>(std::uint64_t{1} << 40);
  hca::MrKeys keys = pair.a.app->reg(nowhere, 1U << 31, test::kAll, false);
};

TEST_F(SmallPackets, AMessageHasNoMoreThanHalfTheCircle) {
  pair.cluster.memory().unmap(nowhere, 1U << 31);
  const hca::Sge from = packets(kHalfCircle + 1);
  ASSERT_EQ(pair.post({.opcode = WrOpcode::rdma_write, .sges = {&from, 1}}), 0);
  const auto sent = pair.run(pair.cluster.now() + 1000).first;
  EXPECT_EQ(test::statuses(sent), std::vector{WcStatus::loc_len_err});
}

TEST_F(SmallPackets, ReadsWaitForRoom) {
  const hca::Sge into[] = {packets(kHalfCircle / 4), packets(kHalfCircle)};
  for (const hca::Sge& piece : into) {
    ASSERT_EQ(pair.post({.opcode = WrOpcode::rdma_read, .sges = {&piece, 1}}), 0);
  }
  pair.run(pair.cluster.now() + 1000);
  EXPECT_EQ(pair.cluster.sent().size(), 1u);
}

// Many messages of every kind over a link drawn from the seed; receives are often posted late.
struct Exchange {
  explicit Exchange(int seed, bool reorder)
      : prng(static_cast<std::uint64_t>(seed)), pair(options_of(prng, seed, reorder)) {}

  static PairOptions options_of(emu::Prng& prng, int seed, bool reorder) {
    PairOptions options;
    options.link = {.seed = static_cast<std::uint64_t>(seed),
                    .loss = 0.05 * prng.uniform(),
                    .repeat = 0.1 * prng.uniform(),
                    .corrupt = 0.02 * prng.uniform(),
                    .delay_min = 20,
                    .delay_max = reorder ? 20 + prng.below(2000) : 20,
                    .slots = 16 + prng.below(200)};
    options.path.min_rnr_timer = 1;
    options.mapped = prng.below(2) == 0;
    options.path.global = prng.below(2) == 0;
    // As on one host: nothing errs in its memory, and CRCs are left out.
    options.host.seals = prng.below(3) != 0;
    if (!options.host.seals) options.link.corrupt = 0;
    if (!options.host.seals && prng.below(4) != 0) options.link.trains = 1 + prng.below(6);
    return options;
  }

  void post_one() {
    const std::uint32_t length = prng.below(20000);
    const auto kind = prng.below(4);
    const hca::Sge from = pair.a.sge(at, length);
    sim::Send send{.wr_id = posted, .sges = {&from, 1}};
    send.remote_addr = pair.b.address(at);
    send.rkey = pair.b.keys.rkey;
    if (kind == 0) send.opcode = WrOpcode::rdma_write;
    if (kind == 1) send.opcode = WrOpcode::rdma_read;
    if (kind == 1) std::memcpy(&pair.b.bytes[at], &pair.a.bytes[at], length);
    if (kind > 1) {
      pair.b.app->post_recv(pair.b.qp, posted, std::array{pair.b.sge(at, length)});
      receives.emplace_back(posted, length);
    }
    ASSERT_EQ(pair.post(send), 0);
    at += length;
    ++posted;
  }

  void run() {
    while (posted < kMessages) {
      for (int burst = 0; burst < 6 && posted < kMessages; ++burst) post_one();
      auto [sent_now, received_now] = pair.run();
      sent.insert(sent.end(), sent_now.begin(), sent_now.end());
      received.insert(received.end(), received_now.begin(), received_now.end());
    }
  }

  // Messages reported as done are done: in order, once, whole.
  void check(bool must_succeed) {
    ASSERT_EQ(sent.size(), kMessages);
    std::size_t good = 0;
    while (good < sent.size() && sent[good].status == WcStatus::success) ++good;
    if (must_succeed) {
      ASSERT_EQ(good, kMessages);
    }
    for (std::size_t i = 0; i < sent.size(); ++i) {
      EXPECT_EQ(sent[i].wr_id, i);
      if (i == good) {
        EXPECT_EQ(sent[i].status, WcStatus::retry_exc_err);
      }
      if (i > good) {
        EXPECT_EQ(sent[i].status, WcStatus::wr_flush_err);
      }
    }
    std::size_t arrived = 0;
    std::size_t whole = 0;
    for (const hca::Cqe& cqe : received) {
      if (cqe.status != WcStatus::success) continue;
      EXPECT_EQ(cqe.wr_id, receives[arrived].first);
      EXPECT_EQ(cqe.byte_len, receives[arrived].second);
      if (cqe.wr_id < good) ++whole;
      ++arrived;
    }
    const auto sent_whole = static_cast<std::size_t>(
        std::count_if(receives.begin(), receives.end(),
                      [good](const auto& receive) { return receive.first < good; }));
    EXPECT_EQ(whole, sent_whole);
    if (good == kMessages) {
      EXPECT_EQ(std::memcmp(pair.a.bytes.data(), pair.b.bytes.data(), at), 0);
      EXPECT_TRUE(pair.cluster.host(0).idle());
    }
  }

  static constexpr std::uint32_t kMessages = 40;
  emu::Prng prng;
  Pair pair;
  std::vector<std::pair<std::uint64_t, std::uint32_t>> receives;  // wr_id, length
  std::vector<hca::Cqe> sent;
  std::vector<hca::Cqe> received;
  std::uint32_t posted = 0;
  std::size_t at = 0;
};

class RcUnder : public testing::TestWithParam<int> {};

// Whatever is lost, repeated or corrupted: every message arrives once, in order, intact.
TEST_P(RcUnder, LossRepetitionCorruption) {
  SCOPED_TRACE(testing::Message() << "seed " << GetParam());
  Exchange exchange(GetParam(), false);
  exchange.run();
  exchange.check(true);
}
// Reordering too, which no fabric of ours does: it still works, or says that it does not.
TEST_P(RcUnder, ReorderingToo) {
  SCOPED_TRACE(testing::Message() << "seed " << GetParam());
  Exchange exchange(GetParam(), true);
  exchange.run();
  exchange.check(false);
}
INSTANTIATE_TEST_SUITE_P(Seeds, RcUnder, testing::Range(1, test::kSanitized ? 31 : 61));

// UD: one datagram, room for a GRH in front, Q_Key and immediate; the sender's numbers are told.
TEST(Ud, SendArrives) {
  test::Cluster cluster({});
  test::Side sides[2];
  for (int n = 0; n < 2; ++n) {
    test::Side& me = sides[n];
    me.app = std::make_unique<sim::App>(cluster.host(n));
    me.bytes.resize(8192);
    me.keys = me.app->reg(me.bytes.data(), me.bytes.size(), test::kAll);
    me.cq = me.app->make_cq(64);
    me.qp = me.app->make_qp(hca::QpType::ud, me.cq, me.cq, {8, 8, 2, 2, 0});
    ASSERT_EQ(me.app->ready_ud(me.qp, 0x1234, cluster.now()), 0);
  }
  const hca::Sge to = sides[1].sge(0, 4096);
  const hca::Sge from = sides[0].sge(0, 2048);
  std::memset(sides[0].bytes.data(), 0x5a, 2048);
  ASSERT_EQ(sides[1].app->post_recv(sides[1].qp, 1, {&to, 1}), 0);
  sim::Send send{.opcode = WrOpcode::send_imm,
                 .wr_id = 4,
                 .sges = {&from, 1},
                 .imm = 99,
                 .remote_qpn = sides[1].qp.number,
                 .remote_qkey = 0x1234,
                 .dlid = 2};
  ASSERT_EQ(sides[0].app->post(sides[0].qp, send), 0);
  send.remote_qkey = 0x4321;  // dropped in silence
  ASSERT_EQ(sides[0].app->post(sides[0].qp, send), 0);
  send.dlid = 77;  // nobody there
  ASSERT_EQ(sides[0].app->post(sides[0].qp, send), 0);
  sides[0].app->ring(cluster.now());
  cluster.run();
  EXPECT_EQ(test::statuses(sides[0].take()), std::vector(3, WcStatus::success));
  const auto received = sides[1].take();
  ASSERT_EQ(received.size(), 1u);
  EXPECT_EQ(received[0].byte_len, 2048u + 40u);
  EXPECT_EQ(received[0].src_qp, sides[0].qp.number);
  EXPECT_EQ(received[0].slid, 1);
  EXPECT_EQ(received[0].imm, 99u);
  EXPECT_EQ(sides[1].bytes[39], 0);
  EXPECT_EQ(sides[1].bytes[40], 0x5a);
  EXPECT_EQ(sides[1].bytes[40 + 2047], 0x5a);
  EXPECT_EQ(cluster.host(1).counters().dropped_bad_key, 1u);
}

// A program may give its QP the Q_Key of management datagrams, and yet sends none: those come from
// QP1.
TEST(Ud, NoProgramSendsManagementDatagrams) {
  Pair pair;
  sim::Queue qp = pair.a.app->make_qp(hca::QpType::ud, pair.a.cq, pair.a.cq, {4, 4, 1, 1, 0});
  ASSERT_EQ(pair.a.app->ready_ud(qp, 0x80010000, pair.cluster.now()), 0);
  const hca::Sge from = pair.a.sge(0, hca::kMadBytes);
  ASSERT_EQ(
      pair.a.app->post(
          qp,
          {.sges = {&from, 1}, .remote_qpn = 1, .remote_qkey = 0x80000000, .dlid = emu::lid_of(1)}),
      0);
  pair.a.app->ring(pair.cluster.now());
  EXPECT_EQ(pair.run().first.size(), 1u);
  EXPECT_TRUE(pair.cluster.told(1).mads.empty());
  EXPECT_EQ(pair.cluster.host(1).counters().dropped_bad_key, 1u);
  ASSERT_TRUE(pair.cluster.host(0).send_mad(1, {}));
  pair.run();
  EXPECT_EQ(pair.cluster.told(1).mads.size(), 1u);
}

}  // namespace
