// The watchdog: is anything still moving? Looks once in watchdog_cycles, so it costs nothing.
#include <algorithm>
#include <utility>

#include "fabric/router/impl.h"

namespace fabric {

namespace {

// Lanes that a sentence names.
constexpr std::size_t kNamedMax = 8;
// A message may be long and its lane slow; without one delivery for so many looks, something turns
// in circles.
constexpr emu::Cycle kLivelockLooks = 16;

// Of those who wait, behind a colon; of nobody, as in a cell switch, nothing.
std::string names_of(const Graph& graph, const std::vector<Wait>& waits) {
  std::string text;
  for (std::size_t i = 0; i < waits.size() && i < kNamedMax; ++i) {
    const Wait& w = waits[i];
    const PortEnd& end = graph.routers[w.router][w.out_port];
    text += fmt::format(
        "{}{} port {} lane {} waits for {} lane {}{}", i == 0 ? ": " : "; ", graph.names[w.router],
        w.in_port, w.in_lane,
        end.router == kNobody ? fmt::format("node {}", end.node) : graph.names[end.router],
        w.out_lane, w.owns ? " to have room" : "");
  }
  if (waits.size() > kNamedMax) text += fmt::format("; {} more", waits.size() - kNamedMax);
  return text;
}

}  // namespace

// Flits are counted, not looked for: in a steady flow every buffer holds at each look what it held.
std::uint64_t Network::Impl::position() const {
  std::uint64_t hash = events.digest;
  const auto mix = [&](std::uint64_t value) { hash = (hash ^ value) * 0x100000001b3; };
  for (std::size_t r = 0; r < graph.routers.size(); ++r) {
    for (std::size_t p = 0; p < graph.routers[r].size(); ++p) {
      const LinkFlits flits =
          link_flits(static_cast<emu::RouterId>(r), static_cast<emu::PortId>(p));
      mix(flits.in);
      mix(flits.out);
    }
  }
  return hash;
}

void Network::Impl::watch() {
  if (spec.watchdog_cycles == 0 || now < next_watch) return;
  // A slow host stands still between two messages, and twice as long holds one of them for sure.
  const emu::Cycle period =
      std::max(spec.watchdog_cycles, 2 * static_cast<emu::Cycle>(spec.receive_cycles));
  next_watch = now + period;
  // What is under way at this look and was not at the last one has had no time to be stuck.
  const bool busy = std::exchange(watch_busy, events.live != 0);
  const std::uint64_t seen = position();
  const bool still = busy && seen == watch_position;
  watch_position = seen;
  if (!busy || events.last_done != watch_done) {
    watch_done = events.last_done;
    watch_since = now;
  }
  stuck.clear();
  if (events.live == 0) return;
  if (still) {
    stuck = fmt::format("deadlock: nothing has moved for {} cycles{}", period,
                        names_of(graph, waits()));
  } else if (now - watch_since >= kLivelockLooks * period) {
    stuck = fmt::format("livelock: nothing has arrived for {} cycles{}", now - watch_since,
                        names_of(graph, waits()));
  }
}

}  // namespace fabric
