// Energy and power against numbers computed by hand from ACP table 1.
#include <gtest/gtest.h>

#include "emu/energy/meter.h"
#include "emu/energy/table.h"

namespace {

using emu::CycleTime;
using emu::EnergyCounts;
using emu::EnergyTable;
using emu::PowerMeter;

// 2 * 31.125 + 2 * 27.075 + 6.10086 + 68.475 and 10.21 * 128.
TEST(Energy, OfAFlit) {
  const EnergyTable table;
  EXPECT_NEAR(table.router_flit_pj(), 190.97586, 1e-9);
  EXPECT_NEAR(table.link_flit_pj(), 1306.88, 1e-9);
  EXPECT_NEAR(EnergyTable{.flit_bits = 32}.link_flit_pj(), 326.72, 1e-9);
}

// (190.97586 (D + 1) + 1306.88 D) 40.
TEST(Energy, OfAPacket) {
  const EnergyTable table;
  EXPECT_NEAR(table.packet_pj(0, 40), 7639.0344, 1e-6);
  EXPECT_NEAR(table.packet_pj(1, 40), 67553.2688, 1e-6);
  EXPECT_NEAR(table.packet_pj(3, 10), 46845.4344, 1e-6);
  EXPECT_NEAR(EnergyTable{.hca_flit_pj = 5}.packet_pj(0, 40), 7639.0344 + 400, 1e-6);
}

// ((D + 1) S - 1) + N + W.
TEST(Energy, CyclesOfAPacket) {
  EXPECT_EQ(emu::packet_cycles(0, 40, 6, 0), 45u);
  EXPECT_EQ(emu::packet_cycles(3, 40, 6, 10), 73u);
}

TEST(Energy, EventsOfWholePassages) {
  const EnergyTable table;
  const auto counts = EnergyCounts::of_flits(1000, 300);
  EXPECT_NEAR(emu::energy_pj(table, counts), 1000 * 190.97586 + 300 * 1306.88, 1e-6);
}

// 500 cycles of 320 ns in which 2000 flits cross: 2000 * 190.97586 pJ / 160 us = 2.387 mW.
TEST(PowerMeter, AveragesAWindow) {
  PowerMeter meter(EnergyTable{}, CycleTime{320'000}, 2.5e-3);
  EXPECT_EQ(meter.window_end(), 500u);
  meter.window_ends(500, EnergyCounts::of_flits(2000, 0));
  EXPECT_NEAR(meter.last_w(), 2000 * 190.97586e-12 / 160e-6, 1e-12);
  EXPECT_EQ(meter.windows_above_cap(), 0u);
  meter.window_ends(1000, EnergyCounts::of_flits(5000, 0));
  EXPECT_NEAR(meter.last_w(), 3000 * 190.97586e-12 / 160e-6, 1e-12);
  EXPECT_EQ(meter.windows_above_cap(), 1u);
  EXPECT_NEAR(meter.mean_w(), 5000 * 190.97586e-12 / 320e-6, 1e-12);
  EXPECT_EQ(meter.max_w(), meter.last_w());
  // A stretch without traffic that was skipped in one go.
  meter.window_ends(5000, EnergyCounts::of_flits(5000, 0));
  EXPECT_EQ(meter.last_w(), 0);
  EXPECT_NEAR(meter.mean_w(), 5000 * 190.97586e-12 / 1600e-6, 1e-12);
  EXPECT_EQ(meter.windows(), 3u);
}

TEST(PowerMeter, StartsInTheMiddleOfALife) {
  PowerMeter meter(EnergyTable{}, CycleTime{320'000}, 1);
  meter.start(10'000, EnergyCounts::of_flits(77, 0));
  EXPECT_EQ(meter.window_end(), 10'500u);
  meter.window_ends(10'500, EnergyCounts::of_flits(77, 0));
  EXPECT_EQ(meter.mean_w(), 0);
}

// ACP figure 3: a 4x4 mesh at half load takes about 21 W. Uniform traffic crosses 8/3 links between
// routers on average: 16 HCAs * 0.5 flits a cycle * (190.97586 * 11/3 + 1306.88 * 8/3) pJ.
TEST(Energy, ThePapersMeshAtHalfLoad) {
  const EnergyTable table;
  const double hops = 8.0 / 3;
  const double flit_pj = table.router_flit_pj() * (hops + 1) + table.link_flit_pj() * hops;
  const double at_51_2_ns = emu::watts(16 * 0.5 / 51.2e-9, flit_pj);
  const double at_3_76_ns = emu::watts(16 * 0.5 / 3.76e-9, flit_pj);
  std::printf("128 bit at 2.5 Gb/s: %.3f W, 21 W is %.1f times that\n", at_51_2_ns,
              21 / at_51_2_ns);
  std::printf("500 cycles in 1.88 us: %.2f W, 21 W is %.2f times that\n", at_3_76_ns,
              21 / at_3_76_ns);
  EXPECT_NEAR(at_51_2_ns, 0.654, 0.001);
  EXPECT_NEAR(at_3_76_ns, 8.90, 0.01);
}

}  // namespace
