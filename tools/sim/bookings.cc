#include "tools/sim/bookings.h"

#include <algorithm>

#include "emu/base/check.h"
#include "fabric/daemon/spec.h"

namespace tools {

void Bookings::attach(fabric::Network& network, const std::vector<StreamDemand>& demands) {
  for (const StreamDemand& demand : demands) {
    streams_.push_back({.demand = demand});
    streams_.back().probe.body.source = demand.source;
    streams_.back().probe.body.connection = streams_.size() - 1;
  }
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
    emu::ProbeBody body{};
    body.source = head.src;
    body.connection = head.cookie;
    admission_->release(head.router, body);
    return true;
  }
  Stream& stream = of(head.cookie);
  admission_->probe(head.router, head.in_port, head.out_port, stream.probe,
                    lane_out(head, stream.probe.body.vl));
  if (stream.probe.rejected_by != emu::kNoRouter) return false;
  stream.booked.push_back({head.router, head.in_port, head.out_port});
  return true;
}

// False: its HCA has no room for the packet.
bool Bookings::send(fabric::Network& network, std::uint64_t connection, emu::PacketKind kind) {
  const StreamDemand& demand = of(connection).demand;
  hca::SendPacket packet;
  packet.cookie = connection;
  packet.flits = static_cast<std::uint16_t>(config_.network.control_packet_size);
  packet.dest = demand.dest;
  packet.vl_in = emu::kControlVl;
  packet.vl_out = emu::kControlVl;
  packet.traffic_class = emu::TrafficClass::control;
  packet.kind = kind;
  return network.submit(demand.source, packet);
}

bool Bookings::has_room(const StreamDemand& demand) const {
  return own_bps_[demand.source] + demand.rate_bps <= config_.reservable_bps();
}

// Books the HCA's own link, and writes the probe.
void Bookings::begin(Stream& stream) {
  const StreamDemand& demand = stream.demand;
  own_bps_[demand.source] += demand.rate_bps;
  const std::uint64_t connection = stream.probe.body.connection + kAskings;
  stream.probe = {};
  stream.probe.body.connection = connection;
  stream.probe.body.rate_bps = demand.rate_bps;
  stream.probe.body.peak_bps = demand.peak_bps;
  stream.probe.body.source = demand.source;
  stream.probe.body.dest = demand.dest;
  stream.probe.body.vl = demand.vl_out;
  stream.probe.body.vl_in = demand.vl_in;
  stream.probe.vl_in = demand.vl_in;
  stream.booked.clear();
  stream.standing = Standing::asking;
}

bool Bookings::ask(fabric::Network& network, std::uint32_t number) {
  ++asked_;
  Stream& stream = streams_[number];
  if (!has_room(stream.demand)) return false;
  begin(stream);
  const emu::Cycle begun = network.now();
  CHECK(send(network, stream.probe.body.connection, emu::PacketKind::probe));
  bool answered = false;
  while (!answered) {
    network.step(8);
    for (const hca::AnswerEvent& answer : network.answers()) {
      answered = true;
      set_up_cycles_ += answer.cycle - begun;
    }
    network.clear_events();
    // Hosts take what arrives when they are ready for it: how long that is is theirs to say.
    CHECK(answered || (!network.idle() && network.stuck().empty()));
  }
  const bool accepted = stream.probe.rejected_by == emu::kNoRouter;
  if (accepted) {
    ++granted_;
    stream.standing = Standing::granted;
  } else {
    leave(stream);
    CHECK(send(network, stream.probe.body.connection, emu::PacketKind::release));
    while (!network.idle()) {
      network.step(8);
      network.clear_events();
    }
  }
  arbitration_->follow(*admission_, network);
  return accepted;
}

void Bookings::leave(Stream& stream) {
  own_bps_[stream.demand.source] -= stream.demand.rate_bps;
  stream.standing = Standing::refused;
}

// A release would go by the ways of now: whoever knows that links changed tells every router.
void Bookings::release_everywhere(const Stream& stream) {
  for (int r = 0; r < admission_->router_count(); ++r)
    admission_->release(static_cast<emu::RouterId>(r), stream.probe.body);
}

void Bookings::ask_again(Stream& stream) {
  if (!has_room(stream.demand)) return;
  begin(stream);
  to_send_.push_back({stream.probe.body.connection, emu::PacketKind::probe});
}

void Bookings::links_changed(fabric::Network& network) {
  if (!config_.controls.admission) return;
  // First all of them give back: what one leaves another may have.
  for (Stream& stream : streams_) {
    if (stream.standing == Standing::asking) continue;  // seen to when its answer comes
    if (stream.standing == Standing::granted) {
      if (stream.booked == network.path(stream.demand.source, stream.demand.dest)) continue;
      leave(stream);
    }
    release_everywhere(stream);
  }
  for (Stream& stream : streams_)
    if (stream.standing == Standing::refused) ask_again(stream);
  look(network);
}

void Bookings::answered(Stream& stream, emu::Cycle cycle, const fabric::Network& network) {
  again_.cycles += cycle - stream.asked;
  const std::vector<fabric::Hop> path = network.path(stream.demand.source, stream.demand.dest);
  const bool accepted = stream.probe.rejected_by == emu::kNoRouter;
  if (accepted && stream.booked == path) {
    ++again_.granted;
    stream.standing = Standing::granted;
    return;
  }
  leave(stream);
  const auto& booked = stream.booked;
  if (booked.size() <= path.size() && std::equal(booked.begin(), booked.end(), path.begin())) {
    to_send_.push_back({stream.probe.body.connection, emu::PacketKind::release});
    return;
  }
  release_everywhere(stream);  // links changed behind its probe
  ask_again(stream);
}

void Bookings::look(fabric::Network& network) {
  for (const hca::AnswerEvent& answer : network.answers())
    answered(of(answer.cookie), answer.cycle, network);
  std::erase_if(to_send_, [&](const Control& control) {
    if (!send(network, control.connection, control.kind)) return false;
    if (control.kind == emu::PacketKind::release) return true;
    ++again_.asked;
    of(control.connection).asked = network.now();
    return true;
  });
  arbitration_->follow(*admission_, network);
}

}  // namespace tools
