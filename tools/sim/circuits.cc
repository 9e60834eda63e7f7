#include "tools/sim/circuits.h"

#include <algorithm>

#include "emu/base/check.h"

namespace tools {

namespace {

constexpr emu::Cycle kProbePatience = 100'000;  // a probe crosses an empty network in hundreds

}  // namespace

bool Circuits::at_route(const fabric::ControlHead& head) {
  if (head.kind != emu::PacketKind::probe) return true;
  const Place place{head.router, head.out_port, prng_.below(lanes_)};
  if (std::ranges::find(taken_, place) != taken_.end()) return false;
  taken_.push_back(place);
  return true;
}

bool Circuits::ask(fabric::Network& network, const StreamDemand& demand, std::uint16_t number) {
  ++asked_;
  const std::size_t before = taken_.size();
  hca::SendPacket packet;
  packet.stream = number;
  packet.dest = demand.dest;
  packet.vl_in = demand.vl_in;
  packet.vl_out = demand.vl_out;
  packet.traffic_class = emu::TrafficClass::real_time;
  packet.kind = emu::PacketKind::probe;
  packet.vtick = demand.vtick;
  CHECK(network.submit(demand.source, packet));
  const emu::Cycle begin = network.now();
  while (network.answers().empty()) {
    CHECK(network.now() < begin + kProbePatience);
    network.step(8);
  }
  const bool accepted = network.answers().front().rejected_by == emu::kNoRouter;
  // A refusal frees the lanes behind it on its way.
  while (!accepted && !network.idle()) network.step(8);
  network.clear_events();
  if (!accepted) taken_.resize(before);
  granted_ += accepted ? 1 : 0;
  return accepted;
}

void Circuits::open(fabric::Network& network, const std::vector<StreamDemand>& demands,
                    double wanted_bps) {
  std::vector<std::uint16_t> of_node(static_cast<std::size_t>(network.nodes()));
  of_stream_.assign(demands.size(), 0);
  double standing_bps = 0;
  for (std::size_t stream = 0; stream < demands.size(); ++stream) {
    const auto rate_bps = static_cast<double>(demands[stream].rate_bps);
    if (standing_bps + rate_bps / 2 > wanted_bps) break;
    std::uint16_t& circuits = of_node[demands[stream].source];
    if (circuits >= lanes_) continue;
    const auto number = static_cast<std::uint16_t>(circuits + 1);
    if (!ask(network, demands[stream], number)) continue;
    of_stream_[stream] = number;
    circuits = number;
    standing_bps += rate_bps;
  }
}

}  // namespace tools
