#include "tools/sim/in_band.h"

#include <algorithm>
#include <bit>

#include "fabric/daemon/look.h"

namespace tools {

namespace {

constexpr emu::NodeId kCollector = 0;
constexpr emu::NodeId kNoReporter = 0xffff;
constexpr emu::Cycle kLeastPeriod = 32;  // as the side band's
// The collector's link carries reports in and sums out; half of it is left to others.
constexpr emu::Cycle kSlack = 2;

}  // namespace

emu::Result<InBand> InBand::make(const emu::Config& config,
                                 const std::array<emu::LaneMask, emu::kClassCount>& lanes,
                                 const fabric::Network& network) {
  InBand made;
  const emu::LaneMask control = lanes[static_cast<std::size_t>(emu::TrafficClass::control)];
  if (control == 0) return emu::fail("controls.notice: control has no lane for messages");
  if (((control >> emu::kControlVl) & 1) == 0)
    made.lane_ = static_cast<emu::Vl>(std::countr_zero(control));
  made.flits_ = static_cast<std::uint16_t>(config.network.control_packet_size);
  made.vc_buf_size_ = static_cast<int>(config.network.vc_buf_size);
  const auto routers = static_cast<std::size_t>(network.routers());
  made.reporter_.assign(routers, kNoReporter);
  made.delivered_.resize(routers);
  for (int n = network.nodes() - 1; n >= 0; --n)
    made.reporter_[network.router_of(static_cast<emu::NodeId>(n))] = static_cast<emu::NodeId>(n);
  if (std::ranges::count(made.reporter_, kNoReporter) != 0)
    return emu::fail("controls.notice: a router has no node that could send its messages");
  for (int n = 0; n < network.nodes(); ++n)
    made.router_of_.push_back(network.router_of(static_cast<emu::NodeId>(n)));
  for (std::size_t r = 0; r < routers; ++r) {
    made.buffers_ += static_cast<std::uint32_t>(network.ports(static_cast<emu::RouterId>(r))) *
                     config.network.num_vcs;
  }
  const auto busiest = static_cast<emu::Cycle>(std::max(routers, made.router_of_.size()));
  made.period_ = std::max(kLeastPeriod, kSlack * busiest * made.flits_);
  return made;
}

FlitMessage InBand::message(emu::NodeId from, emu::NodeId to, emu::Cycle now) const {
  FlitMessage made;
  made.created = made.accepted = made.launch = now;
  made.stream = kNoStream;
  made.flits = flits_;
  made.source = from;
  made.dest = to;
  made.vl_in = made.vl_out = lane_;
  made.traffic_class = emu::TrafficClass::control;
  return made;
}

// A round whose reports have not all come when the next begins tells nobody anything.
void InBand::look(const fabric::Network& network, emu::Cycle now, std::vector<FlitMessage>& out) {
  if (now < next_) return;
  next_ = now + period_;
  sum_ = {.round = sum_.round + 1, .total = true};
  missing_ = reporter_.size();
  for (std::size_t r = 0; r < reporter_.size(); ++r) {
    const auto router = static_cast<emu::RouterId>(r);
    StateReport report = {.delivered = delivered_[r], .round = sum_.round};
    for (int p = 0; p < network.ports(router); ++p) {
      const auto occupancy = network.occupancy(router, static_cast<emu::PortId>(p));
      for (const auto flits : occupancy.input)
        report.full += fabric::is_full(flits, vc_buf_size_) ? 1 : 0;
    }
    if (reporter_[r] == kCollector) {
      add(report, now, out);
      continue;
    }
    out.push_back(message(reporter_[r], kCollector, now));
    out.back().report = report;
  }
}

void InBand::add(const StateReport& report, emu::Cycle now, std::vector<FlitMessage>& out) {
  if (report.round != sum_.round) return;
  sum_.full += report.full;
  sum_.delivered += report.delivered;
  if (--missing_ != 0) return;
  ++complete_;
  for (std::size_t n = 0; n < router_of_.size(); ++n) {
    out.push_back(message(kCollector, static_cast<emu::NodeId>(n), now));
    out.back().report = sum_;
  }
}

bool InBand::arrived(const FlitMessage& message, emu::Cycle now, std::vector<FlitMessage>& out) {
  if (!message.report) {
    delivered_[router_of_[message.dest]] += message.flits;
    return false;
  }
  if (message.report->total) return true;
  add(*message.report, now, out);
  return false;
}

}  // namespace tools
