// The questions of words.h and the arithmetic of port_lanes.h: against plain loops, and each
// instruction set against the base.
#include <gtest/gtest.h>

#include "emu/base/prng.h"
#include "emu/lane/port_bids.h"
#include "emu/lane/port_lanes.h"
#include "emu/lane/words.h"

namespace emu {
namespace {

LaneMask random_word(Prng& random) {
  auto word = static_cast<LaneMask>(random());
  for (unsigned sparse = random.below(5); sparse != 0; --sparse)
    word = static_cast<LaneMask>(word & random());
  return word;
}
LaneMask random_lane(Prng& random, LaneMask of) {
  if (of == 0 || random.below(3) == 0) return 0;
  unsigned vl = random.below(kVlCount);
  while ((of >> vl & 1U) == 0) vl = (vl + 1) % kVlCount;
  return lane_bit(vl);
}

template <Isa kIsa>
void ask_words(unsigned ports) {
  Prng random(ports);
  for (int i = 0; i < 2000; ++i) {
    alignas(64) LaneWords a{};
    alignas(64) LaneWords b{};
    alignas(64) std::array<std::uint8_t, kBlockPorts> bytes{};
    std::uint64_t common = 0;
    std::uint64_t marked = 0;
    std::uint64_t some = 0;
    for (unsigned p = 0; p < ports; ++p) {
      a[p] = random.below(2) == 0 ? LaneMask{0} : random_word(random);
      b[p] = random_word(random);
      bytes[p] = static_cast<std::uint8_t>(random());
      common |= std::uint64_t{(a[p] & b[p]) != 0} << p;
      some |= std::uint64_t{(a[p] | b[p]) != 0} << p;
      marked |= std::uint64_t{bytes[p] >= 0x80} << p;
    }
    ASSERT_EQ(common_words<kIsa>(a, b, ports), common) << "number " << i;
    ASSERT_EQ(quiet<kIsa>(a, b, ports), some == 0);
    ASSERT_EQ(marked_bytes<kIsa>(bytes.data(), ports), marked);
  }
}

template <Isa kIsa>
void ask_lanes() {
  Prng random(7);
  for (int i = 0; i < 5000; ++i) {
    alignas(32) std::array<std::uint16_t, kVlCount> numbers;
    alignas(16) std::array<std::uint8_t, kVlCount> bytes;
    const std::uint32_t range = random.below(2) == 0 ? 4 : 0xffff;  // often equal
    for (auto& n : numbers) n = static_cast<std::uint16_t>(random.below(range));
    for (auto& b : bytes) b = static_cast<std::uint8_t>(1U << random.below(8));
    const unsigned lanes = unsigned{random_word(random)} | 1U << random.below(kVlCount);
    unsigned least = first_of(lanes);
    for (unsigned v = 0; v < kVlCount; ++v)
      if ((lanes >> v & 1U) != 0 && numbers[v] < numbers[least]) least = v;
    ASSERT_EQ(least_lane<kIsa>(numbers.data(), lanes), least) << "number " << i;
    const unsigned bits = random.below(256);
    unsigned with = 0;
    for (unsigned v = 0; v < kVlCount; ++v) with |= unsigned{(bytes[v] & bits) != 0} << v;
    ASSERT_EQ(lanes_with<kIsa>(bytes.data(), bits), with);
  }
}

template <Isa kIsa>
void ask_bids() {
  Prng random(9);
  PortBids bids;
  for (int i = 0; i < 5000; ++i) {
    const unsigned port = random.below(kBlockPorts);
    const unsigned changed = random.below(kBlockLanes);
    bids.set_stamp(changed, static_cast<std::uint16_t>(random.below(4)));  // often equal
    bids.set_out_lane(changed, random.below(kBlockLanes));
    const unsigned lanes = unsigned{random_word(random)} | 1U << random.below(kVlCount);
    unsigned least = block_lane(port, first_of(lanes));
    for (unsigned lane = least; port_of_lane(lane) == port; ++lane)
      if ((lanes >> vl_of_lane(lane) & 1U) != 0 && bids.stamp(lane) < bids.stamp(least))
        least = lane;
    const Bid bid = least_bid<kIsa>(bids, port, lanes);
    ASSERT_EQ(lane_of_bid(bid), vl_of_lane(least)) << "number " << i;
    ASSERT_EQ(out_lane_of_bid(bid), bids.out_lane(least));
    ASSERT_EQ(bid >> kStampShift, bids.stamp(least));
  }
}

template <Isa kIsa>
void ask_only_lanes(unsigned ports) {
  Prng random(ports);
  for (int i = 0; i < 500; ++i) {
    alignas(64) LaneWords words{};
    for (unsigned p = 0; p < ports; ++p) words[p] = random_lane(random, 0xffff);
    const OnlyLanes<kIsa> lanes(words, ports);
    for (unsigned p = 0; p < ports; ++p)
      ASSERT_TRUE(words[p] == 0 || lanes[p] == block_lane(p, first_of(words[p]))) << "port " << p;
  }
}

TEST(PortWords, AnswerAsPlainLoops) {
  for (const unsigned ports : {8U, 16U, 40U, 64U}) ask_words<Isa::base>(ports);
  ask_lanes<Isa::base>();
  ask_bids<Isa::base>();
  for (const unsigned ports : {8U, 40U, 64U}) ask_only_lanes<Isa::base>(ports);
#if defined(__x86_64__)
  if (best_isa(Isa::avx2) == Isa::avx2) {
    for (const unsigned ports : {8U, 16U, 40U, 64U}) ask_words<Isa::avx2>(ports);
    ask_lanes<Isa::avx2>();
    ask_bids<Isa::avx2>();
    for (const unsigned ports : {8U, 40U, 64U}) ask_only_lanes<Isa::avx2>(ports);
  }
  if (best_isa(Isa::avx512) == Isa::avx512) {
    for (const unsigned ports : {8U, 16U, 40U, 64U}) ask_words<Isa::avx512>(ports);
    ask_lanes<Isa::avx512>();
    ask_bids<Isa::avx512>();
    for (const unsigned ports : {8U, 40U, 64U}) ask_only_lanes<Isa::avx512>(ports);
  }
#endif
}

constexpr unsigned kBuffer = 10;

// Ports that send, cross and receive at random; `check` sees what is left to do.
class Ports {
 public:
  Ports(unsigned ports, std::uint64_t seed) : ports_(ports), random_(seed) {
    for (unsigned p = 0; p < ports; ++p) {
      out.metered[p] = random_.below(4) == 0 ? 0 : 0xffff;
      for (unsigned v = 0; v < kVlCount; ++v) out.credits.set(p, v, random_.below(3));
    }
  }

  template <Isa kIsa>
  std::uint64_t cycle() {
    alignas(64) LaneWords returned{};
    alignas(64) LaneWords arrived{};
    Moved moved{};
    moved.came.fill(1);
    moved.gone.fill(1);
    for (unsigned p = 0; p < ports_; ++p) {
      returned[p] = random_lane(random_, out.metered[p]);
      if (returned[p] != 0 && out.credits.get(p, first_of(returned[p])) == 15) returned[p] = 0;
    }
    const OutputLanes<4> before = out;
    LaneWords back = returned;
    const Sent sent = send_in_turn<kIsa>(out, back, moved, 0x8000, ports_);
    check_sent(before, returned, moved.sent, sent);
    for (unsigned p = 0; p < ports_; ++p) {
      EXPECT_EQ(moved.came[p] | moved.gone[p], 0);
      const auto room = static_cast<LaneMask>(~out.full[p]);
      moved.came[p] = random_lane(random_, room);
      moved.gone[p] = random_lane(random_, in.queued[p]);
      arrived[p] = random_lane(random_, 0xffff);
      if (arrived[p] != 0 && in.held.get(p, first_of(arrived[p])) == kBuffer) arrived[p] = 0;
    }
    const OutputLanes<4> out_before = out;
    const InputLanes<4> in_before = in;
    LaneWords links = arrived;
    const Crossed crossed = account<kIsa>(out, in, links, moved, kBuffer, ports_);
    for (unsigned p = 0; p < ports_; ++p) {
      EXPECT_EQ(back[p] | links[p], 0) << "not taken from the link of port " << p;
      EXPECT_EQ(moved.arrived[p], arrived[p]);
    }
    check_account(out_before, in_before, arrived, moved, crossed);
    return sent.ports ^ crossed.filled * 7 ^ sent.heads * 11;
  }

 private:
  void check_sent(const OutputLanes<4>& before, const LaneWords& returned, const LaneWords& sent,
                  const Sent& result) {
    for (unsigned p = 0; p < ports_; ++p) {
      LaneMask able = 0;
      for (unsigned v = 0; v < kVlCount; ++v)
        if (before.credits.get(p, v) + (returned[p] >> v & 1U) > 0) add_lane(able, v);
      able = static_cast<LaneMask>(able & before.occupied[p]);
      LaneMask expected = 0;
      if (able != 0) {
        const unsigned ahead = able & before.behind[p];
        expected = lane_bit(first_of(ahead != 0 ? ahead : able));
        if ((able & 0x8000) != 0) expected = 0x8000;
      }
      ASSERT_EQ(sent[p], expected) << "port " << p;
      ASSERT_EQ(result.ports >> p & 1U, expected != 0);
      ASSERT_EQ(result.heads >> p & 1U, (expected & before.at_head[p]) != 0);
      ASSERT_EQ(result.unfilled >> p & 1U, (expected & before.full[p]) != 0);
      ASSERT_EQ(out.recent_wait[p],
                static_cast<LaneMask>(before.recent_wait[p] +
                                      unsigned{able == 0 && before.occupied[p] != 0}));
      for (unsigned v = 0; v < kVlCount; ++v) {
        const unsigned gone = (expected & before.metered[p]) >> v & 1U;
        ASSERT_EQ(out.credits.get(p, v), before.credits.get(p, v) + (returned[p] >> v & 1U) - gone);
      }
    }
  }
  void check_account(const OutputLanes<4>& out_before, const InputLanes<4>& in_before,
                     const LaneWords& arrived, const Moved& moved, const Crossed& result) {
    for (unsigned p = 0; p < ports_; ++p) {
      for (unsigned v = 0; v < kVlCount; ++v) {
        const unsigned came = moved.came[p] >> v & 1U;
        const unsigned gone = moved.gone[p] >> v & 1U;
        const unsigned held = out_before.held.get(p, v) + came - (moved.sent[p] >> v & 1U);
        ASSERT_EQ(out.held.get(p, v), held);
        ASSERT_EQ(out.occupied[p] >> v & 1U, held != 0);
        ASSERT_EQ(out.full[p] >> v & 1U, held == kBuffer);
        if (came != 0) {
          ASSERT_EQ(result.filled >> p & 1U, held == kBuffer);
        }
        const unsigned queued = in_before.held.get(p, v) + (arrived[p] >> v & 1U) - gone;
        ASSERT_EQ(in.held.get(p, v), queued);
        ASSERT_EQ(in.queued[p] >> v & 1U, queued != 0);
      }
      ASSERT_EQ(result.arrivals >> p & 1U, arrived[p] != 0);
      ASSERT_EQ(in.arrived[p],
                static_cast<LaneMask>(in_before.arrived[p] + unsigned{arrived[p] != 0}));
    }
  }

  OutputLanes<4> out;
  InputLanes<4> in;
  unsigned ports_;
  Prng random_;
};

template <Isa kIsa>
std::uint64_t many_cycles(unsigned ports) {
  Ports some(ports, ports);
  std::uint64_t hash = 0;
  for (int i = 0; i < 150 && !testing::Test::HasFatalFailure(); ++i)
    hash = hash * 0x100000001b3 + some.cycle<kIsa>();
  return hash;
}

// Sources that wait, get credits and send at random, against plain numbers.
template <Isa kIsa>
std::uint64_t many_sources(unsigned ports) {
  Prng random(ports);
  SourceLanes<4> s;
  std::array<std::array<unsigned, kVlCount>, kBlockPorts> credits{};
  std::uint64_t hash = 0;
  for (int i = 0; i < 400; ++i) {
    alignas(64) LaneWords returned{};
    const SourceLanes<4> before = s;
    for (unsigned p = 0; p < ports; ++p) {
      returned[p] = random_lane(random, 0xffff);
      if (returned[p] != 0 && credits[p][first_of(returned[p])] == kBuffer) returned[p] = 0;
      if (returned[p] != 0) ++credits[p][first_of(returned[p])];
      s.waiting[p] = random.below(3) == 0 ? LaneMask{0} : random_word(random);
    }
    const std::uint64_t ready = ready_to_send<kIsa>(s, returned, ports);
    for (unsigned p = 0; p < ports; ++p) {
      LaneMask able = 0;
      for (unsigned v = 0; v < kVlCount; ++v)
        if ((s.waiting[p] >> v & 1U) != 0 && credits[p][v] != 0) add_lane(able, v);
      EXPECT_EQ(s.able[p], able) << "port " << p << ", round " << i;
      EXPECT_EQ(ready >> p & 1U, able != 0);
      EXPECT_EQ(returned[p] | s.sent[p], 0);
      const bool waits = able == 0 && s.waiting[p] != 0;
      EXPECT_EQ(s.recent_wait[p], static_cast<LaneMask>(before.recent_wait[p] + unsigned{waits}));
      s.sent[p] = random_lane(random, able);
      if (s.sent[p] != 0) --credits[p][first_of(s.sent[p])];
    }
    if (testing::Test::HasFailure()) return 0;
    hash = hash * 0x100000001b3 + ready;
  }
  return hash;
}

template <class Run>
void same_by_each_isa(const Run& run) {
  for (const unsigned ports : {8U, 24U, 64U}) {
    SCOPED_TRACE(ports);
    const std::uint64_t base = run.template operator()<Isa::base>(ports);
#if defined(__x86_64__)
    if (best_isa(Isa::avx2) == Isa::avx2) {
      EXPECT_EQ(run.template operator()<Isa::avx2>(ports), base);
    }
    if (best_isa(Isa::avx512) == Isa::avx512) {
      EXPECT_EQ(run.template operator()<Isa::avx512>(ports), base);
    }
#endif
    EXPECT_NE(base, 0U);
  }
}

TEST(PortLanes, CountAsPlainNumbers) {
  same_by_each_isa([]<Isa kIsa>(unsigned ports) { return many_cycles<kIsa>(ports); });
}
TEST(PortLanes, SourcesSpendCreditsAsPlainNumbers) {
  same_by_each_isa([]<Isa kIsa>(unsigned ports) { return many_sources<kIsa>(ports); });
}

}  // namespace
}  // namespace emu
