// The power meter on a real network of two routers with two nodes each: what every window took, by
// the flits that passed in it.
#include "fabric/daemon/power.h"

#include <gtest/gtest.h>

namespace fabric {
namespace {

constexpr emu::CycleTime kTime = {.cycle_ps = 80'000};

class PowerTest : public testing::Test {
 protected:
  void SetUp() override {
    NetworkSpec spec;
    spec.topology = TopologyKind::mesh;
    spec.sides = {2};
    spec.nodes_per_router = 2;
    network_ = Network::make(spec).value();
    table_.hca_flit_pj = 7;
  }
  void submit(emu::NodeId from, emu::NodeId to, int packets, std::uint16_t flits) {
    for (int i = 0; i < packets; ++i) {
      hca::SendPacket packet;
      packet.dest = to;
      packet.flits = flits;
      packet.vl_in = packet.vl_out = 5;
      ASSERT_TRUE(network_->submit(from, packet));
    }
  }
  struct Passed {
    std::uint64_t in = 0;
    std::uint64_t out = 0;
    std::uint64_t to_routers = 0;
    std::uint64_t by_hcas = 0;
  };
  Passed passed() const {
    Passed sum;
    for (emu::RouterId r = 0; r < 2; ++r) {
      for (int p = 0; p < network_->ports(r); ++p) {
        const auto port = static_cast<emu::PortId>(p);
        const LinkFlits flits = network_->link_flits(r, port);
        const bool to_router = network_->peer(r, port).router != emu::kNoRouter;
        sum.in += flits.in;
        sum.out += flits.out;
        (to_router ? sum.to_routers : sum.by_hcas) += flits.out;
        if (!to_router) sum.by_hcas += flits.in;
      }
    }
    return sum;
  }
  double energy_of(const Passed& now, const Passed& before) const {
    const auto flits = [](std::uint64_t a, std::uint64_t b) { return static_cast<double>(a - b); };
    return flits(now.out, before.out) * table_.router_flit_pj() +
           flits(now.to_routers, before.to_routers) * table_.link_flit_pj() +
           flits(now.by_hcas, before.by_hcas) * table_.hca_flit_pj;
  }

  emu::EnergyTable table_;
  std::unique_ptr<Network> network_;
};

// Traffic that stays at one router, a burst over the link, and back: the link's energy is in the
// windows in which flits pass it, and in no other.
TEST_F(PowerTest, LinksTakeTheirEnergyWhenFlitsPassThem) {
  PowerWindows power(table_, kTime, 1.0, 0, 2);
  const double window_ns = static_cast<double>(kTime.ns(emu::kPowerWindowCycles));
  const auto link_pj = [&](emu::Cycle begin) {
    for (const ActivityWindow& w : network_->activity())
      if (w.begin == begin && w.router == 0) return w.sent_to_routers * table_.link_flit_pj();
    return 0.0;
  };
  Passed before;
  std::uint64_t on_link = 0;
  for (int window = 0; window < 12; ++window) {
    const bool across = window >= 4 && window < 6;
    submit(0, across ? 2 : 1, 10, 40);
    network_->run_until(network_->now() + emu::kPowerWindowCycles);
    const Passed now = passed();
    const double link = link_pj(network_->now() - emu::kPowerWindowCycles);
    EXPECT_EQ(link, static_cast<double>(now.to_routers - before.to_routers) * table_.link_flit_pj())
        << "window " << window;
    on_link += now.to_routers - before.to_routers;
    power.add(network_->activity());
    network_->clear_events();
    // A flit at the window's edge has part of its energy in the one and part in the other.
    const double edge = 50 * table_.router_flit_pj();
    EXPECT_NEAR(power.meter().last_w() * window_ns * 1e3, energy_of(now, before), edge)
        << "window " << window;
    before = now;
  }
  EXPECT_EQ(on_link, 2U * 10 * 40);
  network_->run_until(network_->now() + 10 * emu::kPowerWindowCycles);
  power.add(network_->activity());
  power.settle(network_->now());
  ASSERT_TRUE(network_->idle());
  const double time_ns = static_cast<double>(kTime.ns(network_->now()));
  const double total_pj = energy_of(passed(), {});
  EXPECT_NEAR(power.meter().mean_w() * time_ns * 1e3, total_pj, 1e-9 * total_pj);
}

// However long a message is, no window has more of it than a flit a cycle.
TEST_F(PowerTest, NoWindowTakesMoreThanItsCycles) {
  submit(0, 2, 4, 2048);
  network_->run_until(9000);
  std::uint64_t over = 0;
  for (const ActivityWindow& w : network_->activity()) {
    EXPECT_LE(w.sent_to_routers, 500U);
    EXPECT_LE(w.hca_flits, 500U);
    over += w.sent_to_routers;
  }
  EXPECT_EQ(over, 4U * 2048);
}

}  // namespace
}  // namespace fabric
