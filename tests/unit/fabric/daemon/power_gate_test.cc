// What may leave when: on time as the HCAs booked it, late as the power allows.
#include "fabric/daemon/power_gate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <map>
#include <optional>
#include <random>
#include <vector>

#include "emu/base/prng.h"
#include "hca/host/power.h"

namespace fabric {
namespace {

constexpr emu::Cycle kTurn = 300;
constexpr std::uint16_t kFull = 40;

class PowerGateTest : public testing::Test {
 protected:
  PowerGateTest() { make("[network]\nnodes = 4\n"); }
  void make(const std::string& text) {
    config_ = *emu::Config::parse(text);
    options_ = power_gate_options(config_);
    gate_.emplace(options_);
  }
  PowerBudget budget(emu::NodeId node) const { return options_.budgets[node]; }

  hca::SendPacket packet(emu::Cycle launch, emu::TrafficClass traffic_class, emu::Vl lane,
                         std::uint16_t flits = kFull) {
    hca::SendPacket p;
    p.launch = launch;
    p.handle = next_handle_++;
    p.cookie = p.handle;
    p.flits = flits;
    p.dest = 1;
    p.vl_in = p.vl_out = lane;
    p.traffic_class = traffic_class;
    return p;
  }
  // Up to `until`, over links that are never in the way: what passes leaves at once.
  void run(emu::Cycle until, bool leaves = true) {
    while (now_ < until) {
      std::vector<PowerGate::Passed> passed;
      const emu::Cycle to = gate_->pass(now_, std::min(now_ + kTurn, until), passed);
      ASSERT_GT(to, now_);
      for (const auto& p : passed) {
        EXPECT_GE(p.packet.launch, now_);
        EXPECT_LT(p.packet.launch, to);
        if (leaves) left(p, p.packet.launch);
        passed_.push_back(p);
      }
      now_ = to;
    }
  }
  void left(const PowerGate::Passed& p, emu::Cycle head) {
    gate_->left({.cookie = p.packet.cookie,
                 .head_cycle = head,
                 .tail_cycle = head + p.packet.flits - 1,
                 .handle = p.packet.handle,
                 .flits = p.packet.flits,
                 .node = p.source,
                 .traffic_class = p.packet.traffic_class,
                 .kind = p.packet.kind});
  }
  // The most flits of one node that passed within so many cycles.
  std::uint64_t most_flits(emu::Cycle cycles, bool best_effort_only) const {
    std::uint64_t most = 0;
    for (const auto& first : passed_) {
      std::uint64_t flits = 0;
      for (const auto& p : passed_) {
        if (best_effort_only && p.packet.traffic_class != emu::TrafficClass::best_effort) continue;
        const bool inside = p.packet.launch >= first.packet.launch &&
                            p.packet.launch - first.packet.launch < cycles;
        flits += inside ? p.packet.flits : 0;
      }
      most = std::max(most, flits);
    }
    return most;
  }

  emu::Config config_;
  PowerGateOptions options_;
  std::optional<PowerGate> gate_;
  std::vector<PowerGate::Passed> passed_;
  emu::Cycle now_ = 1000;
  std::uint32_t next_handle_ = 1;
};

TEST_F(PowerGateTest, WhatTheCalendarsOfAnHcaBookedPassesAtItsLaunch) {
  const std::uint64_t seed = std::random_device{}();
  std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
  emu::Prng prng(seed);
  const double full_pj = config_.energy.packet_pj(0, kFull);
  hca::EnergyCalendar own(3 * full_pj, 100'000);
  hca::EnergyCalendar of_class(3 * full_pj, 100'000);
  const PowerBudget b = budget(0);
  std::map<std::uint64_t, emu::Cycle> launches;
  for (int i = 0; i < 3000; ++i) {
    const bool best_effort = prng.below(3) == 0;
    const auto flits = static_cast<std::uint16_t>(1 + prng.below(kFull));
    const double pj = config_.energy.packet_pj(0, flits);
    emu::Cycle at = 1000 + prng.below(60'000);
    for (emu::Cycle before = 0; before != at;) {
      before = at = own.earliest(at, pj, b.cycles);
      if (best_effort) at = of_class.earliest(at, pj, b.best_effort_cycles);
    }
    own.hold(at, pj, b.cycles);
    if (best_effort) of_class.hold(at, pj, b.best_effort_cycles);
    const hca::SendPacket p =
        packet(at, best_effort ? emu::TrafficClass::best_effort : emu::TrafficClass::real_time,
               static_cast<emu::Vl>(prng.below(15)), flits);
    launches[p.cookie] = at;
    gate_->take(0, p, now_);
  }
  run(200'000);
  ASSERT_EQ(passed_.size(), launches.size());
  for (const auto& p : passed_) EXPECT_EQ(p.packet.launch, launches[p.packet.cookie]);
  EXPECT_EQ(gate_->held_back(), 0U);
  EXPECT_EQ(gate_->next(), emu::kNever);
}

TEST_F(PowerGateTest, WhatComesLateLeavesAsThePowerAllows) {
  for (int i = 0; i < 200; ++i) {
    const bool best_effort = i % 2 != 0;
    gate_->take(
        0,
        packet(100, best_effort ? emu::TrafficClass::best_effort : emu::TrafficClass::real_time,
               static_cast<emu::Vl>(best_effort ? 0 : 4)),
        now_);
  }
  run(40'000);
  ASSERT_EQ(passed_.size(), 200U);
  EXPECT_EQ(most_flits(budget(0).cycles, false), 3U * kFull);
  EXPECT_EQ(most_flits(budget(0).best_effort_cycles, true), 3U * kFull);
  // Real time first; a lane keeps its order.
  std::array<std::uint64_t, emu::kVlCount> last{};
  for (std::size_t i = 0; i < passed_.size(); ++i) {
    const hca::SendPacket& p = passed_[i].packet;
    EXPECT_EQ(p.traffic_class == emu::TrafficClass::real_time, i < 100);
    EXPECT_GT(p.cookie, last[p.vl_in]);
    last[p.vl_in] = p.cookie;
  }
  // All of it with less than the part that on-time traffic has.
  const emu::Cycle took = passed_[99].packet.launch - passed_[0].packet.launch;
  EXPECT_GT(took, 32 * (budget(0).cycles + budget(0).late_cycles));
  EXPECT_LT(took, 34 * (budget(0).cycles + budget(0).late_cycles));
  EXPECT_GT(gate_->held_back(), 190U);
}

TEST_F(PowerGateTest, WhatHasNotLeftHoldsItsEnergy) {
  for (int i = 0; i < 10; ++i) {
    gate_->take(2, packet(1000, emu::TrafficClass::best_effort, 0), now_);
  }
  run(6000, false);
  // As long as it may still be on its way a turn goes by the plan; then nothing more passes.
  const std::size_t before = passed_.size();
  EXPECT_LT(before, 10U);
  run(20'000, false);
  ASSERT_EQ(passed_.size(), before);
  EXPECT_EQ(gate_->next(), 0U) << "something is due";
  // The way is free: all of it leaves at once, and pays from then on.
  for (const auto& p : std::vector(passed_)) left(p, now_);
  const emu::Cycle free_at = now_;
  run(40'000);
  ASSERT_EQ(passed_.size(), 10U);
  EXPECT_GE(passed_[before].packet.launch, free_at + budget(2).cycles);
}

TEST_F(PowerGateTest, ALaneThatIsLateDelaysOthersLittle) {
  for (int i = 0; i < 300; ++i) {
    gate_->take(0, packet(100, emu::TrafficClass::real_time, 4), now_);
  }
  const hca::SendPacket on_time = packet(3000, emu::TrafficClass::real_time, 5);
  gate_->take(0, on_time, now_);
  run(40'000);
  const auto found = std::ranges::find_if(
      passed_, [&](const auto& p) { return p.packet.cookie == on_time.cookie; });
  ASSERT_NE(found, passed_.end());
  EXPECT_LT(found->packet.launch, 3000 + budget(0).cycles);
}

// An HCA that repeats packets moves the first by a little and hands the rest on with no launch: the
// row stays in order, or its receiver would ask for all of it again.
TEST_F(PowerGateTest, ARowOfRepetitionsKeepsItsOrder) {
  const std::vector<emu::Cycle> launches = {1000, 1160, 1320, 0, 0, 0};
  for (const emu::Cycle launch : launches) {
    gate_->take(0, packet(launch, emu::TrafficClass::real_time, 4), now_);
  }
  run(4000);
  ASSERT_EQ(passed_.size(), launches.size());
  for (std::size_t i = 0; i < passed_.size(); ++i) EXPECT_EQ(passed_[i].packet.cookie, i + 1);
}

TEST_F(PowerGateTest, ControlAndClustersWithoutTheSchemeDoNotComeByHere) {
  EXPECT_FALSE(gate_->meters(packet(0, emu::TrafficClass::control, 15)));
  EXPECT_TRUE(gate_->meters(packet(0, emu::TrafficClass::real_time, 5)));
  hca::SendPacket probe = packet(0, emu::TrafficClass::real_time, 5);
  probe.kind = emu::PacketKind::probe;
  EXPECT_FALSE(gate_->meters(probe));
  for (const char* without :
       {"[controls]\npower_control = false\n", "[controls]\npeak_power = \"none\"\n",
        "[network]\npass_through = true\n"}) {
    make(without);
    EXPECT_FALSE(gate_->meters(packet(0, emu::TrafficClass::real_time, 5))) << without;
  }
}

}  // namespace
}  // namespace fabric
