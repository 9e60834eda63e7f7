#include "tools/sim/bookings.h"

#include "emu/base/check.h"
#include "fabric/daemon/spec.h"

namespace tools {

namespace {

constexpr emu::Cycle kPatience = 100'000;  // a probe crosses an empty network in hundreds

}  // namespace

void Bookings::attach(fabric::Network& network) {
  std::vector<int> ports;
  for (int r = 0; r < network.routers(); ++r) {
    ports.push_back(network.ports(static_cast<emu::RouterId>(r)));
  }
  admission_ = std::make_unique<fabric::Admission>(
      ports, fabric::book_limits(config_, network.routers()), config_.controls.admission);
  for (int r = 0; r < network.routers(); ++r) {
    const auto router = static_cast<emu::RouterId>(r);
    admission_->set_router_ports(router, fabric::router_ports(network, router));
  }
  arbitration_ = std::make_unique<fabric::Arbitration>(config_, network);
  own_bps_.assign(static_cast<std::size_t>(network.nodes()), 0);
}

bool Bookings::at_route(const fabric::ControlHead& head) {
  if (head.kind == emu::PacketKind::release) {
    admission_->release(head.router, probe_.body);
    return true;
  }
  admission_->probe(head.router, head.in_port, head.out_port, probe_,
                    lane_out(head, probe_.body.vl));
  return probe_.rejected_by == emu::kNoRouter;
}

void Bookings::send(fabric::Network& network, const StreamDemand& demand, emu::PacketKind kind) {
  hca::SendPacket packet;
  packet.flits = static_cast<std::uint16_t>(config_.network.control_packet_size);
  packet.dest = demand.dest;
  packet.vl_in = emu::kControlVl;
  packet.vl_out = emu::kControlVl;
  packet.traffic_class = emu::TrafficClass::control;
  packet.kind = kind;
  CHECK(network.submit(demand.source, packet));
}

bool Bookings::ask(fabric::Network& network, const StreamDemand& demand) {
  ++asked_;
  const auto limit_bps = static_cast<std::uint64_t>(
      static_cast<double>(config_.network.link_bps()) * config_.controls.reservable_share);
  std::uint64_t& own = own_bps_[demand.source];
  if (own + demand.rate_bps > limit_bps) return false;
  own += demand.rate_bps;
  probe_ = {};
  probe_.body.connection = asked_;
  probe_.body.rate_bps = demand.rate_bps;
  probe_.body.peak_bps = demand.peak_bps;
  probe_.body.source = demand.source;
  probe_.body.dest = demand.dest;
  probe_.body.vl = demand.vl_out;
  probe_.body.vl_in = demand.vl_in;
  probe_.vl_in = demand.vl_in;
  const emu::Cycle begin = network.now();
  send(network, demand, emu::PacketKind::probe);
  bool answered = false;
  while (!answered) {
    network.step(8);
    for (const hca::AnswerEvent& answer : network.answers()) {
      answered = true;
      set_up_cycles_ += answer.cycle - begin;
    }
    network.clear_events();
    CHECK(network.now() < begin + kPatience);
  }
  const bool accepted = probe_.rejected_by == emu::kNoRouter;
  if (accepted) {
    ++granted_;
  } else {
    own -= demand.rate_bps;
    send(network, demand, emu::PacketKind::release);
    while (!network.idle()) {
      network.step(8);
      network.clear_events();
    }
  }
  arbitration_->follow(*admission_, network);
  return accepted;
}

}  // namespace tools
