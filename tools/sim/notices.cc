#include "tools/sim/notices.h"

#include <algorithm>
#include <bit>

namespace tools {

namespace {

constexpr emu::NodeId kNoSender = 0xffff;
constexpr emu::EmuNs kDcqcnRestNs = 50'000;  // N of DCQCN: a notice about a flow in so long at most

fabric::DetectOptions detect_options(const emu::Config& config) {
  const emu::ControlsConfig& controls = config.controls;
  fabric::DetectOptions options;
  options.approach = controls.congestion == emu::Congestion::vct1 ? 1 : 2;
  options.threshold = controls.vct_threshold;
  options.history = controls.vct_history;
  options.period_routings = controls.vct_period;
  options.lane_buffers = config.network.vc_buf_size;
  return options;
}

fabric::MarkOptions mark_options(const emu::Config& config) {
  const emu::ControlsConfig& controls = config.controls;
  const bool by_part = controls.congestion == emu::Congestion::dcqcn;
  return {controls.mark_from, by_part ? controls.mark_all : controls.mark_from,
          config.network.seed};
}

// The lane that stands for control: VL15 if it is one, else the lowest.
emu::Vl lane_of(emu::LaneMask lanes) {
  if (((lanes >> emu::kControlVl) & 1) != 0) return emu::kControlVl;
  return static_cast<emu::Vl>(std::countr_zero(lanes));
}

}  // namespace

emu::Result<std::unique_ptr<Notices>> Notices::make(
    const emu::Config& config, const std::array<emu::LaneMask, emu::kClassCount>& lanes,
    fabric::Network& network) {
  std::unique_ptr<Notices> notices(new Notices);
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
  notices->flits_ = static_cast<std::uint16_t>(config.network.control_packet_size);
  notices->by_message_ = config.controls.notice == emu::NoticeWay::message;
  const emu::Congestion scheme = config.controls.congestion;
  const bool blames = scheme == emu::Congestion::vct1 || scheme == emu::Congestion::vct2;
  if (notices->by_message_) {
    const emu::LaneMask control = lanes[static_cast<std::size_t>(emu::TrafficClass::control)];
    if (control == 0) return emu::fail("controls.notice: control has no lane for messages");
    notices->lane_ = lane_of(control);
    if (blames && std::ranges::count(notices->sender_, kNoSender) != 0)
      return emu::fail("controls.notice: a router has no node that could send its messages");
  }
  if (blames) {
    notices->detector_ = std::make_unique<fabric::Detector>(ports, detect_options(config));
  } else {
    notices->marker_ = std::make_unique<fabric::Marker>(ports, mark_options(config));
    const auto nodes = static_cast<std::size_t>(network.nodes());
    notices->told_at_.resize(nodes * nodes);
    if (scheme == emu::Congestion::dcqcn)
      notices->rest_cycles_ = config.network.cycle_time().cycle_at(kDcqcnRestNs);
  }
  fabric::HeadWatcher* watcher = notices->detector_.get();
  if (!blames) watcher = notices->marker_.get();
  if (!network.watch(watcher))
    return emu::fail("controls.congestion: the routers of this network see nothing");
  return notices;
}

void Notices::look(emu::Cycle base) {
  if (detector_ != nullptr) {
    for (emu::Notice notice : detector_->notices()) {
      notice.cycle -= base;
      news_.push_back(notice);
    }
    return detector_->clear();
  }
  for (const std::uint32_t handle : marker_->marked()) {
    if (handle >= marked_.size()) marked_.resize(handle + 1);
    marked_count_ += marked_[handle] ? 0 : 1;
    marked_[handle] = true;
  }
  marker_->clear();
}

// A destination tells at most one in the rest time, flow by flow.
bool Notices::may_tell(const FlitMessage& message, emu::Cycle now) {
  const auto nodes = static_cast<std::size_t>(router_of_.size());
  emu::Cycle& next = told_at_[message.source * nodes + message.dest];
  if (now < next) return false;
  next = now + rest_cycles_;
  return true;
}

void Notices::arrived(const FlitMessage& message, std::uint32_t handle, emu::Cycle now) {
  if (handle >= marked_.size() || !marked_[handle]) return;
  marked_[handle] = false;
  if (!may_tell(message, now)) return;
  news_.push_back(
      {now, router_of_[message.dest], message.source, message.dest, emu::NoticeKind::congestion});
}

std::optional<FlitMessage> Notices::carrier(const emu::Notice& notice, emu::Cycle now) const {
  const emu::NodeId sender = notice.dest == emu::kAnyDest ? sender_[notice.router] : notice.dest;
  // An HCA hears of itself without the network.
  if (!by_message_ || sender == notice.source) return {};
  FlitMessage message;
  message.created = message.accepted = message.launch = now;
  message.stream = kNoStream;
  message.flits = flits_;
  message.source = sender;
  message.dest = notice.source;
  message.vl_in = message.vl_out = lane_;
  message.traffic_class = emu::TrafficClass::control;
  message.notice = notice;
  return message;
}

void Notices::heard() {
  for (const emu::Notice& notice : news_) {
    ++(notice.kind == emu::NoticeKind::congestion ? congestion_ : relief_);
  }
  news_.clear();
}

}  // namespace tools
