#include "fabric/router/mark.h"

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
}

void Marker::routed(const HeadAt& head, emu::PortId out_port) {
  const std::uint32_t queued = ++queued_[first_[head.router] + out_port];
  if (head.traffic_class != emu::TrafficClass::best_effort || queued <= options_.from) return;
  const bool some = queued <= options_.all;
  if (some && prng_.below(options_.all - options_.from + 1) >= queued - options_.from) return;
  marked_.push_back(head.handle);
}

void Marker::left(emu::RouterId router, emu::PortId, emu::Vl, emu::PortId out_port) {
  std::uint32_t& queued = queued_[first_[router] + out_port];
  if (queued > 0) --queued;  // 0: it was there before we began to watch
}

}  // namespace fabric
