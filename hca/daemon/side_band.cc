#include "hca/daemon/side_band.h"

#include <utility>

namespace hca {

SideBand::SideBand(std::string path, const emu::Config& config, emu::NodeId node)
    : path_(std::move(path)),
      node_(node),
      nodes_(config.nodes.size()),
      lanes_(config.qos.class_vls[static_cast<std::size_t>(emu::TrafficClass::best_effort)]) {}

bool SideBand::open() {
  if (page_) return true;
  auto page = emu::StateReader::open(path_);
  if (!page) return false;
  page_ = std::move(*page);
  told_ = 0;
  return true;
}

void SideBand::follow_ways(Host& host) {
  if (!open() || page_->ways() == ways_) return;
  ways_ = page_->ways();
  std::vector<PortMask> useful;
  std::vector<std::uint8_t> hops;
  for (std::size_t n = 0; n < nodes_; ++n) {
    const auto dest = static_cast<emu::NodeId>(n);
    useful.push_back(page_->useful_ports(node_, dest));
    hops.push_back(page_->hops(node_, dest));
  }
  host.set_ways(std::move(useful), hops);
}

void SideBand::follow_scheme(const Host& host) {
  needs_ = host.congestion_needs();
  if (needs_ != Signal::blame && needs_ != Signal::marks) heard_.reset();
}

bool SideBand::tell_needed(Host& host, emu::Cycle now) {
  return needs_ == Signal::state ? look(host, now) : listen(host, now);
}

bool SideBand::look(Host& host, emu::Cycle now) {
  if (page_->cycle() == told_) return false;
  emu::StateReading reading;
  if (!page_->read(node_, reading, view_)) return false;
  told_ = reading.cycle;
  host.fabric_state({.free_lanes = view_.free_lanes,
                     .lanes = lanes_,
                     .full_buffers = reading.full_buffers,
                     .buffers = reading.buffers,
                     .delivered_flits = reading.delivered_flits},
                    now);
  return true;
}

// What was told to an earlier scheme is over.
bool SideBand::listen(Host& host, emu::Cycle now) {
  const std::uint64_t told = page_->told(node_);
  std::uint64_t next = heard_.value_or(told);
  heard_ = told;
  if (next == told) return false;
  if (told - next > emu::kNoticesKept) next = told - emu::kNoticesKept;
  for (; next != told; ++next) {
    if (const auto notice = page_->notice(node_, next)) host.notice(*notice, now);
  }
  return true;
}

}  // namespace hca
