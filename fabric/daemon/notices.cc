#include "fabric/daemon/notices.h"

#include <algorithm>

namespace fabric {

namespace {

DetectOptions detect_options(const emu::Config& config, emu::Congestion scheme) {
  const emu::ControlsConfig& controls = config.controls;
  DetectOptions options;
  options.approach = scheme == emu::Congestion::vct1 ? 1 : 2;
  options.threshold = controls.vct_threshold;
  options.history = controls.vct_history;
  options.period_routings = controls.vct_period;
  options.lane_buffers = config.network.vc_buf_size;
  return options;
}

MarkOptions mark_options(const emu::Config& config, emu::Congestion scheme) {
  const emu::ControlsConfig& controls = config.controls;
  const bool by_part = scheme == emu::Congestion::dcqcn;
  return {controls.mark_from, by_part ? controls.mark_all : controls.mark_from,
          config.network.seed};
}

}  // namespace

emu::Result<std::unique_ptr<Notices>> Notices::make(const emu::Config& config,
                                                    emu::Congestion scheme, Network& network) {
  if (blames(scheme) && config.network.router != emu::Router::vct)
    return emu::fail("congestion: {} needs routers that detect: network.router = \"vct\"",
                     emu::name_of(scheme));
  std::unique_ptr<Notices> notices(new Notices(network));
  std::vector<int> ports;
  for (int r = 0; r < network.routers(); ++r)
    ports.push_back(network.ports(static_cast<emu::RouterId>(r)));
  notices->sender_.assign(ports.size(), kNoSender);
  for (int n = network.nodes() - 1; n >= 0; --n) {
    const auto node = static_cast<emu::NodeId>(n);
    notices->sender_[network.router_of(node)] = node;
  }
  for (int n = 0; n < network.nodes(); ++n)
    notices->router_of_.push_back(network.router_of(static_cast<emu::NodeId>(n)));
  if (blames(scheme)) {
    notices->detector_ = std::make_unique<Detector>(ports, detect_options(config, scheme));
  } else {
    notices->marker_ = std::make_unique<Marker>(ports, mark_options(config, scheme));
    const auto nodes = static_cast<std::size_t>(network.nodes());
    notices->told_at_.resize(nodes * nodes);
    if (scheme == emu::Congestion::dcqcn)
      notices->rest_cycles_ = config.network.cycle_time().cycle_at(
          static_cast<emu::EmuNs>(config.controls.dcqcn_notice_us * 1000 + 0.5));
  }
  if (!notices->listen())
    return emu::fail("congestion: {} needs routers that mark packets: network.engine = \"general\"",
                     emu::name_of(scheme));
  return notices;
}

Notices::~Notices() { network_.watch(nullptr); }

bool Notices::listen() {
  if (detector_ != nullptr) return network_.watch(detector_.get());
  return network_.watch(marker_.get());
}

emu::Result<std::unique_ptr<Notices>> Notices::make_wanted(const emu::Config& config,
                                                           emu::Congestion scheme,
                                                           Network& network) {
  if (!wanted(scheme)) return nullptr;
  auto made = make(config, scheme, network);
  const bool by_message = config.controls.notice == emu::NoticeWay::message;
  if (made && by_message && !(*made)->all_have_senders())
    return emu::fail("controls.notice = \"message\": a router has no node that could send");
  return made;
}

bool Notices::all_have_senders() const {
  return marker_ != nullptr || std::ranges::count(sender_, kNoSender) == 0;
}

void Notices::look() {
  if (detector_ != nullptr) {
    const auto seen = detector_->notices();
    news_.insert(news_.end(), seen.begin(), seen.end());
    return detector_->clear();
  }
  for (const std::uint32_t handle : marker_->marked()) {
    if (marked_.insert(handle).second) ++counts_.marked;
  }
  marker_->clear();
}

// A destination tells at most one in the rest time, flow by flow.
bool Notices::may_tell(emu::NodeId source, emu::NodeId dest, emu::Cycle now) {
  emu::Cycle& next = told_at_[source * router_of_.size() + dest];
  if (now < next) return false;
  next = now + rest_cycles_;
  return true;
}

void Notices::arrived(std::uint32_t handle, emu::NodeId source, emu::NodeId dest, emu::Cycle now) {
  if (marked_.erase(handle) == 0 || !may_tell(source, dest, now)) return;
  news_.push_back({now, router_of_[dest], source, dest, emu::NoticeKind::congestion});
}

void Notices::heard() {
  for (const emu::Notice& notice : news_)
    ++(notice.kind == emu::NoticeKind::congestion ? counts_.congestion : counts_.relief);
  news_.clear();
}

}  // namespace fabric
