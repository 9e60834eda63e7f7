// When tails leave, found afterwards, against a counter of each lane that is asked in every cycle.
#include "fabric/router/tail_log.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <tuple>
#include <vector>

#include "emu/base/prng.h"

namespace fabric {
namespace {

using Left = std::tuple<emu::Cycle, unsigned, hca::MessageId>;  // cycle, output lane, message

// Lanes of a router as flits: 0, or the message whose tail it is.
struct Lanes {
  std::vector<hca::MessageId> lane[emu::kLaneSlots];
};

void compare(std::uint64_t seed, emu::Cycle start) {
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  emu::Prng random(seed);
  TailLog log(100'000);
  Lanes lanes;
  std::vector<Left> expected;
  std::vector<Left> found;
  std::vector<Left> probes_expected;
  std::vector<Left> probes_found;
  hca::MessageId next = 0;
  const unsigned used = 1 + random.below(emu::kVlCount);
  constexpr emu::Cycle kDelay = 3;
  emu::Cycle look = start + 1;
  emu::Cycle now = start;
  const auto step = [&](bool comes) {
    emu::Lanes8 sent{};
    for (unsigned port = 0; port < emu::kPortsMax; ++port) {
      const unsigned slot = emu::lane_slot(port, random.below(used));
      auto& flits = lanes.lane[slot];
      if (flits.empty() || (comes && random.below(3) == 0)) continue;
      sent[port] = static_cast<std::uint16_t>(1U << emu::vl_of_slot(slot));
      const hca::MessageId id = flits.front();
      flits.erase(flits.begin());
      if (id == 0) continue;
      (id % 5 == 0 ? probes_expected : expected).emplace_back(now, slot, id);
    }
    log.sent(now, sent);
    for (unsigned port = 0; comes && port < emu::kPortsMax; ++port) {
      const unsigned slot = emu::lane_slot(port, random.below(used));
      auto& flits = lanes.lane[slot];
      if (flits.size() >= 12) continue;
      const bool tail = random.below(4) == 0;
      flits.push_back(tail ? ++next : 0);
      if (tail) log.crossed(now, next, slot, static_cast<unsigned>(flits.size()), next % 5 == 0);
    }
    if (log.has_probes()) {
      log.follow_probes(now, sent, kDelay, [&](unsigned lane, hca::MessageId id) {
        probes_found.emplace_back(now - kDelay, lane, id);
      });
    }
    ++now;
    if (now != look && now % (TailLog::kCyclesMax - 32) != 0) return;
    log.look(now - 1, [&](emu::Cycle cycle, unsigned lane, hca::MessageId id) {
      found.emplace_back(cycle, lane, id);
    });
    look = now + 1 + random.below(random.below(4) == 0 ? 300 : 5);
  };
  for (int phase = 0; phase < 6; ++phase) {
    for (int i = 0; i < 1500; ++i) step(true);
    for (int i = 0; i < 800; ++i) step(false);
    for (const auto& lane : lanes.lane) ASSERT_TRUE(lane.empty());
    now += random.below(2) * (1 + random.below(5000));  // nothing is there: cycles are skipped
    look = now + 1;
  }
  EXPECT_EQ(found, expected);
  // Those of one cycle may be told of in any order: they turn round at different HCAs.
  std::sort(probes_found.begin(), probes_found.end());
  std::sort(probes_expected.begin(), probes_expected.end());
  EXPECT_EQ(probes_found, probes_expected);
}

TEST(TailLog, FindsWhenEachTailLeft) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    compare(seed, seed * 77);
    if (testing::Test::HasFailure()) return;
  }
}

}  // namespace
}  // namespace fabric
