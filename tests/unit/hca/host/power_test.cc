// Peak power at the HCA (ACP section 5): the calendar of its energy, and when packets leave by it.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "emu/base/prng.h"
#include "emu/config/config.h"
#include "hca/host/power.h"
#include "tests/unit/hca/host/pair.h"

namespace {

using test::Pair;
using test::PairOptions;

// A slow calendar: one cell per bucket, searched from every start in turn.
class SlowCalendar {
 public:
  SlowCalendar(unsigned budget, emu::Cycle cycles) : budget_(budget), held_(cycles / kBucket) {}

  // kNever: not from a bucket up to that of `most`.
  emu::Cycle earliest(emu::Cycle wish, unsigned energy, emu::Cycle duration, emu::Cycle most) {
    for (emu::Cycle bucket = wish / kBucket; bucket <= most / kBucket; ++bucket) {
      const emu::Cycle at = std::max(wish, bucket * kBucket);
      if (fits(at, energy, duration)) return at;
    }
    return emu::kNever;
  }
  void hold(emu::Cycle at, unsigned energy, emu::Cycle duration) {
    for (auto b = at / kBucket; b <= (at + duration - 1) / kBucket; ++b) held_[b] += energy;
  }

 private:
  static constexpr emu::Cycle kBucket = hca::EnergyCalendar::kBucketCycles;

  bool fits(emu::Cycle at, unsigned energy, emu::Cycle duration) {
    for (auto b = at / kBucket; b <= (at + duration - 1) / kBucket; ++b) {
      if (held_[b] != 0 && held_[b] + energy > budget_) return false;
    }
    return true;
  }

  unsigned budget_;
  std::vector<unsigned> held_;
};

// The calendar never holds more than its budget, whatever the order of the wishes; and gives each
// packet the first place where it fits: a slow model agrees. Some packets are held without asking
// (acknowledgements), some are larger than the budget. The ring goes round several times.
TEST(Power, CalendarGivesTheFirstPlace) {
  constexpr emu::Cycle kHorizon = 8000;
  constexpr unsigned kBudget = 100;
  for (const std::uint64_t seed : {7u, 8u, 9u}) {
    SCOPED_TRACE(seed);
    emu::Prng prng(seed);
    hca::EnergyCalendar calendar(kBudget, kHorizon);
    SlowCalendar model(kBudget, 20 * kHorizon);
    emu::Cycle now = 0;
    int placed = 0;
    int refused = 0;
    for (int i = 0; i < 8000; ++i) {
      now += prng.below(i % 1000 == 999 ? 6000 : 24);
      calendar.advance(now);
      const auto energy = static_cast<unsigned>(5 + 5 * prng.below(i % 50 == 0 ? 30 : 10));
      const emu::Cycle duration = 10 + prng.below(90);
      const emu::Cycle wish = now + prng.below(4000);
      const emu::Cycle most = wish + prng.below(300);
      const emu::Cycle at = calendar.earliest(wish, energy, duration, most);
      ASSERT_EQ(at, model.earliest(wish, energy, duration, most)) << i;
      const bool anyway = prng.below(20) == 0;
      ++(at == emu::kNever ? refused : placed);
      if (at == emu::kNever && !anyway) continue;
      calendar.hold(anyway ? wish : at, energy, duration);
      model.hold(anyway ? wish : at, energy, duration);
    }
    EXPECT_GT(placed, 1000);
    EXPECT_GT(refused, 1000);
  }
}

// Whatever the energies, what is held is rounded so that the budget is kept; three thirds fit.
TEST(Power, CalendarKeepsItsBudget) {
  emu::Prng prng(7);
  constexpr double kBudget = 1234.5678;
  hca::EnergyCalendar calendar(kBudget, 8000);
  std::vector<double> model(16000, 0.0);
  for (int i = 0; i < 2000; ++i) {
    const double energy = kBudget * static_cast<double>(1 + prng.below(1000)) / 3000;
    const emu::Cycle duration = 10 + prng.below(90);
    const emu::Cycle at = calendar.earliest(prng.below(4000), energy, duration);
    if (at == emu::kNever) break;
    calendar.hold(at, energy, duration);
    for (emu::Cycle c = at; c < at + duration; ++c) {
      model[c] += energy;
      ASSERT_LE(model[c], kBudget + 1e-9) << "cycle " << c;
    }
  }
  hca::EnergyCalendar thirds(kBudget, 8000);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(thirds.earliest(100, kBudget / 3, 40), 100u);
    thirds.hold(100, kBudget / 3, 40);
  }
  EXPECT_EQ(thirds.earliest(100, kBudget / 3, 40), 140u);
}

// An idle calendar delays nobody; a packet larger than the budget goes when nothing else is held.
TEST(Power, CalendarWhenIdle) {
  hca::EnergyCalendar calendar(100, 1000);
  EXPECT_EQ(calendar.earliest(123, 50, 40), 123u);
  calendar.hold(123, 50, 40);
  EXPECT_EQ(calendar.earliest(123, 50, 40), 123u);
  calendar.hold(123, 50, 40);
  EXPECT_GE(calendar.earliest(123, 50, 40), 163u);
  EXPECT_GE(calendar.earliest(123, 500, 40), 163u);
  calendar.advance(500);
  EXPECT_EQ(calendar.earliest(500, 500, 40), 500u);
}

// A message of so many full packets, from one node to the other.
void send_packets(Pair& pair, std::uint32_t packets) {
  pair.expect_recv(1, pair.b.sge(0, 1'000'000));
  const hca::Sge from = pair.a.sge(0, 612 * packets);
  ASSERT_EQ(pair.post({.sges = {&from, 1}}), 0);
  pair.run();
}

// Caps so small, or packets so long, that a packet holds its energy for longer than the horizon.
TEST(Power, BestEffortLeavesHoweverLongItHoldsItsEnergy) {
  for (const char* text :
       {"[network]\ntopology = \"mesh:4x4\"\nflit_bits = 32\npacket_size = 1024\nlink_mbps = 10",
        "[network]\ntopology = \"mesh:2x2\"\n[controls]\npower_cap_load = 0.001",
        "[network]\ntopology = \"mesh:64\"\nflit_bits = 32\npacket_size = 1024\n"
        "[controls]\npower_cap_load = 0.001\n[hca]\nlaunch_horizon_us = 100"}) {
    const auto config = emu::Config::parse(text);
    ASSERT_TRUE(config) << config.error().message;
    PairOptions options;
    options.host.cycle_time = config->network.cycle_time();
    options.host.link_bps = config->network.link_bps();
    options.host.flit_bits = config->network.flit_bits;
    options.host.packet_flits = config->network.packet_size;
    options.host.launch_horizon_us = config->hca.launch_horizon_us;
    options.host.energy = config->energy;
    options.host.hops_to[7] =
        static_cast<std::uint8_t>(config->links_between(0, config->nodes.size() - 1));
    options.host.power_w = config->power_cap_w() / static_cast<double>(config->nodes.size());
    Pair pair(options);
    pair.expect_recv(1, pair.b.sge(0, 1000));
    const hca::Sge from = pair.a.sge(0, 1000);
    ASSERT_EQ(pair.post({.sges = {&from, 1}}), 0);
    const auto [sent, received] = pair.run(pair.cluster.now() + 100'000);
    EXPECT_EQ(test::statuses(sent), std::vector{hca::WcStatus::success}) << text;
  }
}

// What peers read looked for energy more often than the node's own requests, had it all and put
// them off each time it found none, until they were given up.
TEST(Power, ReadsLeaveSomeToRequests) {
  PairOptions options;
  options.host.power_window_packets = 1;
  options.host.best_effort_power_share = 1;
  const double packet_pj = options.host.energy.packet_pj(0, 40);
  options.host.power_w = packet_pj / 80 / static_cast<double>(options.host.cycle_time.cycle_ps);
  Pair pair(options);
  constexpr std::uint32_t kReads = 8;
  constexpr std::uint32_t kReadBytes = 612 * 200;
  for (std::uint32_t i = 0; i < kReads; ++i) {
    const hca::Sge to = pair.a.sge(i * kReadBytes, kReadBytes);
    ASSERT_EQ(pair.post({.opcode = hca::WrOpcode::rdma_read,
                         .sges = {&to, 1},
                         .remote_addr = pair.b.address(0),
                         .rkey = pair.b.keys.rkey}),
              0);
  }
  pair.cluster.run(pair.cluster.now() + 10'000);
  const hca::Sge from = pair.b.sge(0, 612 * 100);
  const sim::Send write{.opcode = hca::WrOpcode::rdma_write,
                        .sges = {&from, 1},
                        .remote_addr = pair.a.address(0),
                        .rkey = pair.a.keys.rkey};
  ASSERT_EQ(pair.b.app->post(pair.b.qp, write), 0);
  pair.b.app->ring(pair.cluster.now());
  std::size_t read = 0;
  std::vector<hca::Cqe> written;
  while (written.empty()) {
    ASSERT_LT(read, kReads) << "all reads came before the node's own request";
    pair.cluster.run(pair.cluster.now() + 1000);
    read += pair.a.take().size();
    written = pair.b.take();
  }
  EXPECT_EQ(test::statuses(written), std::vector{hca::WcStatus::success});
  EXPECT_LE(read, kReads / 2);
}

// Packets leave no faster than the HCA's power pays for them; real time is moved a little, and only
// so far; without control nothing is moved.
TEST(Power, PacketsAreSpacedOut) {
  for (const std::uint8_t sl : {std::uint8_t{0}, std::uint8_t{1}, std::uint8_t{2}}) {
    PairOptions options;
    options.path.sl = sl == 2 ? std::uint8_t{0} : sl;
    options.host.controls.power_control = sl != 2;
    options.host.power_window_packets = 1;
    options.host.best_effort_power_share = 1;
    const double packet_pj = options.host.energy.packet_pj(0, 40);
    options.host.power_w = packet_pj / 80 / static_cast<double>(options.host.cycle_time.cycle_ps);
    Pair pair(options);
    ASSERT_NO_FATAL_FAILURE(send_packets(pair, 40));
    const auto& sent = pair.cluster.sent();
    for (std::size_t i = 1; i < 40; ++i) {
      const emu::Cycle gap = sent[i].launch_cycle - sent[i - 1].launch_cycle;
      if (sl == 0) {
        EXPECT_GE(gap, 79u) << i;
        EXPECT_LE(gap, 84u) << i;
      } else if (sl == 1) {
        EXPECT_LE(sent[i].launch_cycle, sent[0].launch_cycle + 300'000 / 320 + 1);
      } else {
        EXPECT_EQ(gap, 0u);
      }
    }
  }
}

// Where power is small, a window of the meter pays for less than a packet: then an HCA that was
// silent does not send three at once, however many its budget would hold.
TEST(Power, NoWindowHasABurstOfBestEffort) {
  PairOptions options;
  constexpr emu::Cycle kPays = 2000;
  const double packet_pj = options.host.energy.packet_pj(0, 40);
  options.host.power_w = packet_pj / static_cast<double>(kPays) /
                         options.host.best_effort_power_share /
                         static_cast<double>(options.host.cycle_time.cycle_ps);
  ASSERT_GT(options.host.power_window_packets, 1U);
  Pair pair(options);
  ASSERT_NO_FATAL_FAILURE(send_packets(pair, 10));
  const auto& sent = pair.cluster.sent();
  ASSERT_GE(sent.size(), 10U);
  for (std::size_t i = 1; i < 10; ++i) {
    const emu::Cycle gap = sent[i].launch_cycle - sent[i - 1].launch_cycle;
    EXPECT_GE(gap, kPays - 1) << i;
    EXPECT_LE(gap, kPays + kPays / 20) << i;
  }
}

// On a mesh the budget is that of a packet to the farthest node. Packets to near ones fit in
// several at once, but hold their energy as long: together they are no faster than the power pays
// for.
TEST(Power, NearPacketsPayInFull) {
  PairOptions options;
  options.host.power_window_packets = 1;
  options.host.best_effort_power_share = 1;
  options.host.hops_to[7] = 4;
  const double packet_pj = options.host.energy.packet_pj(0, 40);
  const double budget_pj = options.host.energy.packet_pj(4, 40);
  const double pj_per_cycle = packet_pj / 80;
  options.host.power_w = pj_per_cycle / static_cast<double>(options.host.cycle_time.cycle_ps);
  Pair pair(options);
  ASSERT_NO_FATAL_FAILURE(send_packets(pair, 400));
  const auto& sent = pair.cluster.sent();
  const auto took = static_cast<double>(sent[399].launch_cycle - sent[0].launch_cycle);
  EXPECT_GE(took * pj_per_cycle, 399 * packet_pj - budget_pj);
  EXPECT_LE(took * pj_per_cycle, 1.1 * 400 * packet_pj);
}

}  // namespace
