// What one router of the general engine remembers, and what all its routers share. Plain data,
// sized at start; the stages (general_stages.cc) are functions over it. Input buffers of a port are
// called queues: one a lane, or one for each priority level of a lane (preemption).
#pragma once

#include <array>
#include <vector>

#include "fabric/route/routing.h"
#include "fabric/router/control_hook.h"
#include "fabric/router/general_arbiter.h"
#include "fabric/router/general_clock.h"
#include "fabric/router/general_links.h"
#include "fabric/router/network.h"
#include "fabric/router/spec.h"

namespace fabric::general {

// Of the message at the front of a queue.
enum class Front : std::uint8_t {
  idle,         // none, or one that has not been routed
  routing,      // its head is due in stage 2
  arbitrating,  // in stage 3
  waiting,      // in line for its output lane
  active,       // has it
};

// An input queue of a router: its port and its place among the queues of that port.
struct QueueAt {
  std::uint8_t port;
  std::uint8_t queue;
  bool operator==(const QueueAt&) const = default;
};
inline constexpr QueueAt kNoQueue = {0xff, 0xff};

struct InputQueue {
  FlitRing flits;
  Front front = Front::idle;
  std::uint8_t out_port = 0;
  std::uint8_t out_lane = 0;
  QueueAt next_in_line = kNoQueue;
  std::uint16_t messages = 0;  // heads that came and whose tails have not crossed
};

struct OutputLane {
  FlitRing flits;
  QueueAt owner = kNoQueue;
  QueueAt line_first = kNoQueue;
  QueueAt line_last = kNoQueue;
  std::array<std::uint16_t, kLevelsMax> credits{};
};

struct Port {
  std::vector<InputQueue> in;   // [lane * levels + level]
  std::vector<OutputLane> out;  // [lane]
  // One bit a queue.
  QueueBits routing = 0;
  QueueBits arbitrating = 0;
  QueueBits active = 0;
  // One bit an output lane.
  LaneBits out_filled = 0;  // holds a flit
  LaneBits owned = 0;
  LaneBits to_grant = 0;  // became free, or somebody joined its line
  int last_served = -1;   // by the VC multiplexer
  // Where the scheduler sits: at the input of a multiplexed crossbar, at the output of a full one.
  PortClock clock;
  Arbiter arbiter;
  // Cold.
  std::array<LaneCounters, kLanesMax> received{};
  std::array<LaneCounters, kLanesMax> sent{};
  std::uint64_t wait_cycles = 0;
};

struct Router {
  emu::RouterId id = 0;
  std::vector<Port> ports;
  PortBits routing = 0;  // ports with a bit in Port::routing; the others alike
  PortBits arbitrating = 0;
  PortBits active = 0;
  PortBits out_filled = 0;
  PortBits to_grant = 0;
  std::uint32_t held = 0;  // flits in its buffers
  // Of the running energy window.
  ActivityWindow window{};
};

// What the units share.
struct World {
  World(const NetworkSpec& network_spec, const Graph& graph, const Routes& network_routes,
        hca::MessageTable& table, ControlHook* control_hook)
      : spec(network_spec),
        routes(network_routes),
        messages(table),
        hook(control_hook),
        links(graph, network_spec.link_delay),
        rules{network_spec.scheduler, network_spec.counters} {
    if (network_spec.router == RouterKind::traditional) rules = {};  // FCFS
  }
  const NetworkSpec& spec;
  const Routes& routes;
  hca::MessageTable& messages;
  ControlHook* hook;
  Links links;
  ClockRules rules;
  unsigned lanes = emu::kVlCount;
  unsigned levels = 1;

  bool traditional() const { return spec.router == RouterKind::traditional; }
  bool full_crossbar() const { return spec.crossbar == CrossbarKind::full; }
  unsigned level_of(const hca::Message&) const { return 0; }
  unsigned lane_of(unsigned queue) const { return levels == 1 ? queue : queue / levels; }
  unsigned queue_of(unsigned lane, unsigned level) const { return lane * levels + level; }
  // Lanes that go before all others, and those that yield to them, by their number.
  LaneBits control_lanes() const { return traditional() ? 0 : spec.lanes_of_class[0]; }
  LaneBits yielding_lanes() const { return spec.strict_classes ? spec.lanes_of_class[2] : 0; }
};

void configure_port_schedulers(PortClock& clock, Arbiter& arbiter, const World& world);

// One cycle of a router; nothing happens when it holds no flit and nothing comes.
void step_router(Router& router, World& world, emu::Cycle now);

}  // namespace fabric::general
