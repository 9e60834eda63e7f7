#include "fabric/router/detect.h"

#include <algorithm>

#include "emu/base/check.h"

namespace fabric {

Detector::Detector(std::span<const int> ports_of_router, const DetectOptions& options)
    : options_(options) {
  CHECK(options.history <= kHistoryMax && options.period_routings > 0);
  std::size_t lanes = 0;
  for (const int ports : ports_of_router) {
    Router router;
    router.first_lane = lanes;
    router.lanes = static_cast<std::size_t>(ports) * emu::kVlCount;
    router.history.assign(options.history, kNobody);
    lanes += router.lanes;
    routers_.push_back(std::move(router));
  }
  lanes_.resize(lanes);
  for (Lane& lane : lanes_) lane.buffered.reserve(options.lane_buffers);
}

Detector::Lane& Detector::lane_at(emu::RouterId router, emu::PortId in_port, emu::Vl lane) {
  return lanes_[routers_[router].first_lane + in_port * std::size_t{emu::kVlCount} + lane];
}
std::size_t Detector::occupied(emu::RouterId router, emu::PortId in_port, emu::Vl lane) const {
  const std::size_t first = routers_[router].first_lane;
  return lanes_[first + in_port * std::size_t{emu::kVlCount} + lane].buffered.size();
}

void Detector::tell(emu::RouterId router, emu::NodeId source, emu::NoticeKind kind,
                    emu::Cycle cycle) {
  notices_.push_back({cycle, router, source, emu::kAnyDest, kind});
}

void Detector::gather(const Lane& lane) {
  for (const Buffered& one : lane.buffered) suspects_.push_back(one.source);
}

// Of equally frequent ones the first: the one that has been buffered longest.
emu::NodeId Detector::most_frequent(const Router& router) {
  for (const emu::NodeId source : router.history)
    if (source != kNobody) suspects_.push_back(source);
  emu::NodeId found = kNobody;
  std::ptrdiff_t most = 0;
  for (const emu::NodeId source : suspects_) {
    const std::ptrdiff_t count = std::ranges::count(suspects_, source);
    if (count <= most) continue;
    most = count;
    found = source;
  }
  return found;
}

void Detector::came(const HeadAt& head) {
  // Control traffic has lanes of its own, and nobody slows it down.
  if (head.traffic_class == emu::TrafficClass::control) return;
  Lane& lane = lane_at(head.router, head.in_port, head.lane);
  lane.buffered.push_back({head.handle, head.src});
  if (options_.approach != 2 || !congested(lane)) return;
  suspects_.clear();
  gather(lane);
  const emu::NodeId blamed = most_frequent(routers_[head.router]);
  if (blamed == lane.blamed) return;  // it knows
  if (lane.blamed != kNobody) tell(head.router, lane.blamed, emu::NoticeKind::relief, head.cycle);
  tell(head.router, blamed, emu::NoticeKind::congestion, head.cycle);
  lane.blamed = blamed;
}

void Detector::routed(const HeadAt& head, emu::PortId) {
  if (head.traffic_class == emu::TrafficClass::control) return;
  Lane& lane = lane_at(head.router, head.in_port, head.lane);
  lane.oldest_routed = !lane.buffered.empty() && lane.buffered.front().handle == head.handle &&
                       lane.buffered.front().source == head.src;
  Router& router = routers_[head.router];
  ++router.routings;
  if (!router.history.empty()) router.history[router.routings % router.history.size()] = head.src;
  if (options_.approach == 1) {
    if (router.routings % options_.period_routings == 0) look_at_all(head.router, head.cycle);
    return;
  }
  // The head that is routed is still buffered, so a lane is never below one.
  const std::size_t relieved_below = std::max<std::size_t>(2, options_.threshold);
  if (lane.blamed == kNobody || lane.buffered.size() >= relieved_below) return;
  tell(head.router, lane.blamed, emu::NoticeKind::relief, head.cycle);
  lane.blamed = kNobody;
}

// Approach 1: one source of the router is told, however many of its lanes are congested.
void Detector::look_at_all(emu::RouterId id, emu::Cycle cycle) {
  const Router& router = routers_[id];
  suspects_.clear();
  for (std::size_t i = 0; i < router.lanes; ++i) {
    const Lane& lane = lanes_[router.first_lane + i];
    if (congested(lane)) gather(lane);
  }
  if (suspects_.empty()) return;
  tell(id, most_frequent(router), emu::NoticeKind::congestion, cycle);
}

// Not routed: one of control, or one that came before we began to watch.
void Detector::left(emu::RouterId router, emu::PortId in_port, emu::Vl vl, emu::PortId) {
  Lane& lane = lane_at(router, in_port, vl);
  if (!lane.oldest_routed) return;
  lane.oldest_routed = false;
  lane.buffered.erase(lane.buffered.begin());
}

}  // namespace fabric
