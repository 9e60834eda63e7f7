// What holds for every design alike: latency without load is the pipeline's, below saturation what
// is offered is accepted, and neither the order in which routers are stepped nor how many cycles a
// step has changes anything.
#include <algorithm>
#include <string>

#include "emu/base/prng.h"
#include "tests/unit/fabric/router/design_net.h"
#include "tests/unit/sanitized.h"

namespace fabric {
namespace {

struct Design {
  std::string name;
  NetworkSpec spec;
};

// Routers, crossbars and blocks, in the general engine, and what the fast engine does.
std::vector<Design> designs() {
  std::vector<Design> all = {{"fast np", general()},
                             {"fast np in turn", general()},
                             {"fast tr", general(RouterKind::traditional)}};
  all[1].spec.scheduler = emu::SchedulerKind::round_robin;
  for (Design& fast : all) fast.spec.general_engine = false;
  for (std::size_t r = 0; r < kRouterNames.size(); ++r) {
    const auto router = static_cast<RouterKind>(r);
    for (const CrossbarKind crossbar : {CrossbarKind::multiplexed, CrossbarKind::full}) {
      for (const int block : {1, 10}) {
        Design design = {std::string(kRouterNames[r]), general(router)};
        design.spec.crossbar = crossbar;
        design.spec.block_flits = block;
        if (crossbar == CrossbarKind::full) design.name += " full";
        if (block > 1) design.name += " block";
        // Cells of a whole message, and all the way of a credit.
        if (router == RouterKind::cell) design.spec.vc_buf_size = 40;
        all.push_back(design);
        if (router == RouterKind::cell) break;  // has no crossbar and no blocks
      }
      if (router == RouterKind::cell) break;
    }
  }
  return all;
}

// From the head's cycle at the HCA to the tail's at the receiver: fabric/router/DESIGNS.md.
emu::Cycle formula(const NetworkSpec& spec, int hops, int flits) {
  const auto h = static_cast<emu::Cycle>(hops);
  const auto d = static_cast<emu::Cycle>(spec.link_delay);
  const auto n = static_cast<emu::Cycle>(flits);
  if (spec.router == RouterKind::cell) return h * (2 + d) + d + n - 1;
  const emu::Cycle heads = h * (4 + d) + d;
  if (spec.router != RouterKind::circuit) return heads + n - 1;
  const emu::Cycle answer = (h + 1) * d;
  return heads + answer + h * (2 + d) + d + n - 1;
}

struct Net {
  TopologyKind topology;
  std::vector<int> sides;
};

TEST(EveryDesign, LatencyWithoutLoadIsThePipelines) {
  const Net nets[] = {{TopologyKind::single, {}},
                      {TopologyKind::mesh, {6, 2}},
                      {TopologyKind::torus, {4, 3}},
                      {TopologyKind::fat_mesh, {2, 2}},
                      {TopologyKind::ary_tree, {}}};
  for (const Design& design : designs()) {
    for (const Net& net : nets) {
      for (const int delay : {1, 3}) {
        NetworkSpec spec = design.spec;
        spec.topology = net.topology;
        spec.sides = net.sides;
        spec.arity = 2;
        spec.levels = 3;
        spec.link_delay = delay;
        spec.lanes_of_class = {0xc000, 0x3ff0, 0x000f};
        if (spec.router == RouterKind::cell && net.topology == TopologyKind::torus)
          spec.routing = RoutingKind::up_down;
        auto network = make(spec);
        for (emu::NodeId dest = 0; dest < network->nodes(); ++dest) {
          const std::uint16_t flits = dest % 2 == 0 ? 1 : 7;
          ASSERT_TRUE(network->submit(0, packet_to(dest, flits, 5)));
          const auto events = drain(*network, 300);
          ASSERT_EQ(events.size(), 1U) << design.name;
          EXPECT_EQ(events[0].tail_cycle - events[0].head_cycle,
                    formula(spec, network->hops(0, dest), flits))
              << design.name << " to node " << dest << ", link delay " << delay;
          network->clear_events();
        }
      }
    }
  }
}

// Poisson packets of 20 flits to other nodes, on real-time lanes; the same for the same seed.
class Traffic {
 public:
  Traffic(Network& network, double load, std::uint64_t seed)
      : network_(network),
        load_(load),
        random_(seed),
        next_(static_cast<std::size_t>(nodes()), 0) {}

  void feed(emu::Cycle end) {
    for (std::uint32_t n = 0; n < nodes(); ++n) {
      for (; next_[n] < static_cast<double>(end); next_[n] += random_.exponential(20 / load_)) {
        const auto dest = static_cast<emu::NodeId>((n + 1 + random_.below(nodes() - 1)) % nodes());
        auto packet = packet_to(dest, 20, static_cast<emu::Vl>(4 + random_.below(10)));
        packet.launch = static_cast<emu::Cycle>(next_[n]);
        packet.cookie = ++count_;
        EXPECT_TRUE(network_.submit(static_cast<emu::NodeId>(n), packet));
      }
    }
  }
  double offered() const { return 20.0 * static_cast<double>(count_); }

 private:
  std::uint32_t nodes() const { return static_cast<std::uint32_t>(network_.nodes()); }
  Network& network_;
  double load_;
  emu::Prng random_;
  std::vector<double> next_;
  std::uint64_t count_ = 0;
};

TEST(EveryDesign, BelowSaturationAcceptedIsOffered) {
  for (const Design& design : designs()) {
    auto network = make(design.spec);
    // A circuit's lane is idle while its probe and the answer are under way.
    const double load = design.spec.router == RouterKind::circuit ? 0.35 : 0.55;
    Traffic traffic(*network, load, 3);
    constexpr emu::Cycle kCycles = test::kSanitized ? 10'000 : 30'000;
    double accepted = 0;
    for (emu::Cycle end = 500; end <= kCycles; end += 500) {
      traffic.feed(end);
      network->step(500);
      for (const auto& event : network->delivered()) accepted += event.flits;
      network->clear_events();
    }
    EXPECT_GT(accepted, 0.985 * traffic.offered()) << design.name;
    EXPECT_EQ(network->audit(), "") << design.name;
  }
}

// `cycles` cycles a step; the routers in an order drawn for each step where `shuffled`.
std::uint64_t digest_of(const NetworkSpec& spec, emu::Cycle cycles, bool shuffled) {
  auto network = make(spec);
  Traffic traffic(*network, 0.5, 11);
  emu::Prng random(17);
  std::vector<emu::RouterId> order;
  for (int r = 0; r < network->routers(); ++r) order.push_back(static_cast<emu::RouterId>(r));
  for (emu::Cycle end = 120; end <= 840; end += 120) {
    traffic.feed(end);
    while (network->now() < end) {
      if (shuffled) {
        for (std::size_t i = order.size(); i > 1; --i)
          std::swap(order[i - 1], order[random.below(static_cast<std::uint32_t>(i))]);
        network->set_step_order(order);
      }
      network->step(std::min(cycles, end - network->now()));
    }
    network->clear_events();
  }
  return network->digest();
}

TEST(EveryDesign, OrderAndLengthOfStepsChangeNothing) {
  for (const Design& design : designs()) {
    for (const Net& net : {Net{TopologyKind::mesh, {3, 3}}, Net{TopologyKind::fat_mesh, {2, 2}}}) {
      NetworkSpec spec = design.spec;
      spec.topology = net.topology;
      spec.sides = net.sides;
      spec.vc_buf_size = std::max(4, spec.vc_buf_size / 2);  // crowded
      if (net.topology == TopologyKind::fat_mesh) spec.routing = RoutingKind::dor_by_load;
      const std::uint64_t digest = digest_of(spec, 120, false);
      EXPECT_EQ(digest_of(spec, 1, true), digest) << design.name;
      EXPECT_EQ(digest_of(spec, 7, true), digest) << design.name;
      EXPECT_EQ(digest_of(spec, 1, false), digest) << design.name;
      spec.link_delay = 2;
      EXPECT_NE(digest_of(spec, 120, false), digest) << "a hash that tells nothing";
    }
  }
}

}  // namespace
}  // namespace fabric
