// engine_curve: one point of a latency and throughput curve, for a comparison with another
// simulator (docs/booksim.md): Bernoulli packets from every node to uniform nodes, itself included,
// on lanes drawn from all sixteen. Options on the command line, one line of JSON out.
#include <fmt/format.h>

#include <cmath>
#include <cstdio>
#include <deque>
#include <string>
#include <vector>

#include "emu/base/prng.h"
#include "emu/cli/command_line.h"
#include "fabric/router/network.h"

namespace bench {
namespace {

struct Options {
  std::string topology = "single";
  std::vector<int> sides;  // grids; of a tree its arity and levels
  std::string scheduler = "rr";
  bool full_crossbar = false;
  int nodes = 8;
  int vc_buf_size = 10;
  int alloc_iters = 1;
  std::uint16_t packet_size = 40;
  double injection_rate = 0.1;  // flits per node and cycle
  emu::Cycle warm_up = 30'000;
  emu::Cycle cycles = 100'000;
  std::uint64_t seed = 1;
};

struct Sums {
  double packets = 0;
  double packet_cycles = 0;   // created -> tail out of the network
  double network_cycles = 0;  // head into the network -> tail out of it
  double hops = 0;
  double flits = 0;
  double offered_flits = 0;
};

fabric::NetworkSpec spec_of(const Options& options) {
  fabric::NetworkSpec spec;
  if (options.topology == "mesh") spec.topology = fabric::TopologyKind::mesh;
  if (options.topology == "torus") spec.topology = fabric::TopologyKind::torus;
  if (options.topology == "tree") {
    spec.topology = fabric::TopologyKind::ary_tree;
    spec.arity = options.sides.at(0);
    spec.levels = options.sides.at(1);
    spec.routing = fabric::RoutingKind::up_by_load;
  }
  spec.nodes = options.nodes;
  spec.sides = options.sides;
  spec.scheduler = options.scheduler == "fcfs"   ? emu::SchedulerKind::fcfs
                   : options.scheduler == "fgvc" ? emu::SchedulerKind::fgvc
                                                 : emu::SchedulerKind::round_robin;
  if (options.full_crossbar) spec.crossbar = fabric::CrossbarKind::full;
  spec.vc_buf_size = options.vc_buf_size;
  spec.alloc_iters = options.alloc_iters;
  spec.lanes_of_class = {0, 0, 0xffff};
  spec.packets_per_node = 4096;
  return spec;
}

class Curve {
 public:
  Curve(const Options& options, fabric::Network& network)
      : options_(options), network_(network), random_(options.seed) {
    const auto nodes = static_cast<std::size_t>(network.nodes());
    next_.resize(nodes);
    queue_.resize(nodes);
    for (emu::Cycle& first : next_) first = gap() - 1;
  }

  Sums run() {
    while (network_.now() < options_.warm_up + options_.cycles) {
      const emu::Cycle end = network_.now() + kBatch;
      for (std::size_t n = 0; n < next_.size(); ++n) create(static_cast<emu::NodeId>(n), end);
      network_.step(kBatch);
      for (const hca::DeliveredEvent& event : network_.delivered()) count(event);
      network_.clear_events();
    }
    return sums_;
  }

 private:
  static constexpr emu::Cycle kBatch = 50;

  // Cycles to the next success of one trial a cycle.
  emu::Cycle gap() {
    const double chance = options_.injection_rate / options_.packet_size;
    return 1 + static_cast<emu::Cycle>(random_.exponential(-1 / std::log1p(-chance)));
  }

  void create(emu::NodeId node, emu::Cycle end) {
    for (; next_[node] < end; next_[node] += gap()) {
      hca::SendPacket packet;
      packet.cookie = packet.launch = next_[node];
      packet.flits = options_.packet_size;
      packet.dest = static_cast<emu::NodeId>(random_.below(static_cast<unsigned>(next_.size())));
      packet.vl_in = static_cast<emu::Vl>(random_.below(emu::kVlCount));
      packet.vl_out = static_cast<emu::Vl>(random_.below(emu::kVlCount));
      queue_[node].push_back(packet);
      if (packet.launch >= options_.warm_up) sums_.offered_flits += packet.flits;
    }
    // Beyond saturation sources wait, without end.
    while (!queue_[node].empty() && network_.submit(node, queue_[node].front()))
      queue_[node].pop_front();
  }

  void count(const hca::DeliveredEvent& event) {
    if (event.tail_cycle < options_.warm_up) return;
    ++sums_.packets;
    sums_.packet_cycles += static_cast<double>(event.tail_cycle - event.cookie);
    sums_.network_cycles += static_cast<double>(event.tail_cycle - event.head_cycle);
    sums_.hops += network_.hops(event.src, event.node);
    sums_.flits += event.flits;
  }

  const Options& options_;
  fabric::Network& network_;
  emu::Prng random_;
  std::vector<emu::Cycle> next_;
  std::vector<std::deque<hca::SendPacket>> queue_;
  Sums sums_;
};

int run(const Options& options) {
  auto network = fabric::Network::make(spec_of(options));
  if (!network) {
    fmt::print(stderr, "engine_curve: {}\n", network.error().message);
    return 2;
  }
  const Sums sums = Curve(options, **network).run();
  const double packets = std::max(sums.packets, 1.0);
  const double node_cycles =
      static_cast<double>((*network)->nodes()) * static_cast<double>(options.cycles);
  fmt::print(
      "{{\"nodes\":{},\"packets\":{},\"packet_latency\":{:.4f},\"network_latency\":{:.4f},"
      "\"hops\":{:.4f},\"offered\":{:.5f},\"accepted\":{:.5f}}}\n",
      (*network)->nodes(), sums.packets, sums.packet_cycles / packets,
      sums.network_cycles / packets, sums.hops / packets, sums.offered_flits / node_cycles,
      sums.flits / node_cycles);
  return 0;
}

}  // namespace
}  // namespace bench

int main(int argc, char** argv) {
  bench::Options options;
  emu::CommandLine line("One point of a latency and throughput curve, as one line of JSON.");
  line.option("--topology", options.topology).one_of({"single", "mesh", "torus", "tree"});
  line.option("--sides", options.sides, "4,4; of a tree its arity and levels").list();
  line.option("--nodes", options.nodes, "of a single switch");
  line.option("--scheduler", options.scheduler).one_of({"rr", "fcfs", "fgvc"});
  line.flag("--full-crossbar", options.full_crossbar);
  line.option("--vc-buf-size", options.vc_buf_size);
  line.option("--alloc-iters", options.alloc_iters);
  line.option("--packet-size", options.packet_size).range(1, 1024);
  line.option("--injection-rate", options.injection_rate).range(1e-6, 2.0);
  line.option("--warm-up", options.warm_up);
  line.option("--cycles", options.cycles);
  line.option("--seed", options.seed);
  if (const auto code = line.parse(argc, argv)) return *code;
  return bench::run(options);
}
