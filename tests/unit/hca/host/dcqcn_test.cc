// DCQCN by itself: how far a notice cuts, how the rate comes back, what a flow remembers.
#include <gtest/gtest.h>

#include "hca/host/congestion.h"

namespace {

TEST(Dcqcn, AsConfigured) {
  hca::CongestionOptions options;
  options.quadrant_of.resize(2);
  options.time.cycle_ps = 80'000;
  options.reaction.dcqcn_timer_ns = 8'000;  // 100 cycles
  options.reaction.dcqcn_gain = 0.5;
  options.reaction.dcqcn_rate_ai = 0.25;
  const auto control = hca::make_dcqcn(options);
  control->notice(emu::NoticeKind::congestion, 1, 100);
  EXPECT_EQ(control->delay_cycles(100), 40U) << "half of the link";
  control->handed_on(1, 40, 199);
  EXPECT_EQ(control->delay_cycles(199), 40U);
  control->handed_on(1, 40, 200);
  EXPECT_EQ(control->delay_cycles(200), 13U) << "half of the way back to the whole";
  control->notice(emu::NoticeKind::congestion, 1, 200);  // alpha was 1, is 0.5, and becomes 0.75
  EXPECT_EQ(control->delay_cycles(200), 31U) << "0.75 * (1 - 0.5 / 2): it cuts by alpha as it was";
}

// DCQCN: the first notice halves the rate, later ones cut by what alpha was by then, and it climbs
// back to the whole of the link.
TEST(Dcqcn, CutsAndRecovers) {
  hca::CongestionOptions options;
  options.quadrant_of.resize(4);
  options.time.cycle_ps = 80'000;
  const auto control = hca::make_dcqcn(options);
  const auto gap = [&](emu::Cycle now) {
    control->handed_on(3, 40, now);
    emu::Cycle at = now;
    while (!control->may_send(3, at)) ++at;
    return at - now;
  };
  EXPECT_EQ(gap(0), 0U);
  control->notice(emu::NoticeKind::congestion, 3, 1000);
  EXPECT_NEAR(static_cast<double>(gap(1000)), 80, 2);
  control->notice(emu::NoticeKind::congestion, 3, 1100);
  EXPECT_NEAR(static_cast<double>(gap(1100)), 160, 4);
  EXPECT_TRUE(control->may_send(1, 1000));
  const emu::Cycle period = options.time.cycle_at(55'000);
  EXPECT_NEAR(static_cast<double>(gap(1100 + period)), 107, 3) << "half way back to a half";
  const double recovered = static_cast<double>(gap(1100 + 6 * period));
  EXPECT_LT(recovered, 84) << "five halvings: nearly what it was before the last notice";
  EXPECT_GT(recovered, 78);
  EXPECT_EQ(gap(1100 + 300 * period), 0U);
}

// Alpha falls with every period without a notice, back at the link's rate too: after a long time
// without congestion a notice cuts by what is left of it.
TEST(Dcqcn, ForgetsCongestionAtTheLinksRateToo) {
  hca::CongestionOptions options;
  options.quadrant_of.resize(2);
  options.time.cycle_ps = 320'000;
  const auto rate_after = [&](emu::Cycle idle_us) {
    const auto control = hca::make_dcqcn(options);
    const auto cut_at = [&](emu::Cycle us) {
      const emu::Cycle now = options.time.cycle_at(us * 1000);
      control->notice(emu::NoticeKind::congestion, 1, now);
      return 40.0 / static_cast<double>(40 + control->delay_cycles(now));
    };
    EXPECT_NEAR(cut_at(100'000), 0.5, 0.01) << "the first cuts by half, whenever it comes";
    EXPECT_EQ(control->delay_cycles(options.time.cycle_at(102'000'000)), 0U)
        << "2 ms later it is back";
    return cut_at(102'000 + idle_us);
  };
  // 55 us a period, gain 1/256: alpha is 0.87 after 2 ms, 0.43 after 10 more, and no more.
  EXPECT_NEAR(rate_after(0), 1 - 0.87 / 2, 0.02);
  EXPECT_NEAR(rate_after(10'000), 1 - 0.43 / 2, 0.02);
  EXPECT_GT(rate_after(100'000), 0.99);
  EXPECT_GT(rate_after(1'000'000'000'000), 0.999) << "in no more time";
}

}  // namespace
