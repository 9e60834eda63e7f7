#include "fabric/router/mark.h"

#include <algorithm>

#include "emu/base/check.h"

namespace fabric {

Marker::Marker(std::span<const int> ports_of_router, const MarkOptions& options)
    : options_(options), prng_(options.seed) {
  CHECK(options.all >= options.from);
  std::size_t ports = 0;
  for (const int count : ports_of_router) {
    first_.push_back(ports);
    ports += static_cast<std::size_t>(count);
  }
  queued_.resize(ports);
  open_.assign(ports * emu::kVlCount * emu::kClassCount, kNoPort);
}

std::span<emu::PortId> Marker::open_in(emu::RouterId router, emu::PortId in_port, emu::Vl lane) {
  const std::size_t lanes = (first_[router] + in_port) * emu::kVlCount + lane;
  return {&open_[lanes * emu::kClassCount], emu::kClassCount};
}

void Marker::routed(const HeadAt& head, emu::PortId out_port) {
  const auto open = open_in(head.router, head.in_port, head.lane);
  const auto free = std::ranges::find(open, kNoPort);
  CHECK(free != open.end());
  *free = out_port;
  const std::uint32_t queued = ++queued_[first_[head.router] + out_port];
  if (head.traffic_class != emu::TrafficClass::best_effort || queued <= options_.from) return;
  const bool some = queued <= options_.all;
  if (some && prng_.below(options_.all - options_.from + 1) >= queued - options_.from) return;
  marked_.push_back(head.handle);
}

void Marker::left(emu::RouterId router, emu::PortId in_port, emu::Vl lane, emu::PortId out_port) {
  const auto open = open_in(router, in_port, lane);
  const auto found = std::ranges::find(open, out_port);
  if (found == open.end()) return;  // it was routed before we began to watch
  *found = kNoPort;
  --queued_[first_[router] + out_port];
}

}  // namespace fabric
