// What one router of the general engine remembers, and what all its routers share. Plain data,
// sized at start; the stages (general_stages.h) are functions over it. Input buffers of a port are
// called queues: one a lane, or one for each priority level of a lane (preemption).
#pragma once

#include <array>
#include <vector>

#include "fabric/route/routing.h"
#include "fabric/router/control_hook.h"
#include "fabric/router/general_arbiter.h"
#include "fabric/router/general_clock.h"
#include "fabric/router/general_links.h"
#include "fabric/router/general_stamps.h"
#include "fabric/router/network.h"
#include "fabric/router/power_herd.h"
#include "fabric/router/recovery_token.h"
#include "fabric/router/spec.h"

namespace fabric::general {

// Of the message at the front of a queue.
enum class Front : std::uint8_t {
  idle,         // none, or one that has not been routed
  routing,      // its head is due in stage 2
  arbitrating,  // in stage 3
  waiting,      // in line for its output lane
  active,       // has it
  suspended,    // routed, interrupted by a higher level; needs its output lane again
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
  // Recovery: the head at the front found no free lane in this cycle, and ever since.
  emu::Cycle waits_since = emu::kNever;
  // Preemption. Of the front message, which has been routed:
  hca::MessageId message = hca::kNoMessage;
  bool worm_open = false;  // its head crossed, its tail did not
  Stamp dummy_stamp = 0;   // of the dummy flit that is due
};

struct OutputLane {
  FlitRing flits;
  QueueAt owner = kNoQueue;
  QueueAt line_first = kNoQueue;
  QueueAt line_last = kNoQueue;
  std::array<std::uint16_t, kLevelsMax> credits{};
};

struct Port {
  std::vector<InputQueue> in;   // [queue: level * kVlCount + lane]
  std::vector<OutputLane> out;  // [lane]
  // One bit a queue.
  QueueBits routing = 0;
  // Of the routing ones: no lane was free for it, and none has become so since (Router::freed).
  QueueBits asleep = 0;
  QueueBits arbitrating = 0;
  QueueBits active = 0;
  QueueBits filled = 0;   // has a flit, or a dummy flit is due
  QueueBits blocked = 0;  // of the active ones: its output lane is full
  // Preemption: a dummy tail is due; a dummy head is, before its next flit.
  QueueBits closing = 0;
  QueueBits needs_head = 0;
  QueueBits outranked = 0;  // of the active ones: a higher level waits for its output lane
  NextStamps next;          // of the filled ones
  bool has_dummy(unsigned queue) const { return (((closing | needs_head) >> queue) & 1U) != 0; }
  // Behind every change of what a queue would send next.
  void show_next(unsigned queue) {
    const InputQueue& q = in[queue];
    const bool dummy = has_dummy(queue);
    const QueueBits bit = queue_bit(queue);
    if (!dummy && q.flits.empty()) {
      filled &= ~bit;
      return;
    }
    filled |= bit;
    next.set(queue, dummy ? q.dummy_stamp : q.flits.front().stamp);
  }
  // One bit a queue of the next unit: the flit at the front of an output lane goes there; there is
  // room for a flit.
  QueueBits out_next = 0;
  QueueBits out_room = 0;
  // One bit an output lane.
  LaneBits out_filled = 0;  // holds a flit
  LaneBits owned = 0;
  LaneBits to_grant = 0;  // became free, or somebody joined its line
  int last_served = -1;   // by the VC multiplexer
  // Where the scheduler sits: at the input of a multiplexed crossbar, at the output of a full one.
  PortClock clock;
  Arbiter arbiter;
  LinkFlits link;
  bool to_hca = false;
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
  // Output ports of which, since stage 2 looked last, a lane lost its owner or one without an owner
  // got a credit: where heads that sleep may find room.
  PortBits freed = 0;
  // The active queues of an input port that lead to an output port.
  std::vector<QueueBits> leads;  // [input port * ports + output port]
  QueueBits& leads_to(unsigned in, unsigned out) { return leads[in * ports.size() + out]; }
  // Those that sleep until this output port is freed; of others the bits mean nothing.
  std::vector<QueueBits> seeks;  // [input port * ports + output port]
  QueueBits& seeks_to(unsigned in, unsigned out) { return seeks[in * ports.size() + out]; }
  std::uint32_t held = 0;     // flits in its buffers
  std::uint32_t dummies = 0;  // queues with a dummy flit due
  // Of the running energy window.
  ActivityWindow window{};
};

inline HerdPace pace_of(const NetworkSpec& spec) {
  const int lanes = spec.router == RouterKind::circuit ? spec.circuits : emu::kVlCount;
  return {.window_cycles = spec.energy_window,
          .link_delay = spec.link_delay,
          .crossings = spec.crossbar == CrossbarKind::full ? lanes : 1};
}

// What the units share.
struct World {
  World(const NetworkSpec& network_spec, const Graph& graph, const Routes& network_routes,
        hca::MessageTable& table, ControlHook* control_hook, DesignCounters& design_counters)
      : spec(network_spec),
        routes(network_routes),
        messages(table),
        hook(control_hook),
        design(design_counters),
        herd(network_spec.herd, graph, pace_of(network_spec)),
        token(graph.routers.size(), network_spec.start),
        links(graph, network_spec.link_delay),
        rules{network_spec.router_scheduler(), network_spec.counters},
        hca_rules{network_spec.wire_scheduler(), network_spec.counters} {
    if (traditional()) rules.counters = CounterKind::epoch;
    if (traditional() && !spec.hca_scheduler) hca_rules = rules;
    if (preemptive()) levels = emu::kClassCount;
    if (!circuits()) {
      first_lanes = spec.first_lanes();
      if (spec.strict_classes) yielding_lanes = spec.lanes_of_class[2];
      return;
    }
    lanes = static_cast<unsigned>(spec.circuits);
    // The Vtick of a lane is that of the connection that has it.
    for (ClockRules* one : {&rules, &hca_rules}) {
      if (one->kind == emu::SchedulerKind::virtual_clock) one->kind = emu::SchedulerKind::fgvc;
      if (one->kind == emu::SchedulerKind::fair_queueing) one->kind = emu::SchedulerKind::fgfq;
    }
    signals.resize(graph.nodes.size() * kLanesMax);
  }
  const NetworkSpec& spec;
  const Routes& routes;
  hca::MessageTable& messages;
  ControlHook* hook;
  HeadWatcher* watcher = nullptr;
  DesignCounters& design;
  PowerHerd herd;
  RecoveryToken token;
  Links links;
  ClockRules rules;
  ClockRules hca_rules;
  unsigned lanes = emu::kVlCount;
  unsigned levels = 1;
  // Lanes that go before all others, and those that yield to them, where a lane has one class.
  LaneBits first_lanes = 0;
  LaneBits yielding_lanes = 0;

  // Acknowledgements of circuits on their way back, the next one first: a ring.
  struct Signal {
    emu::Cycle due;
    Links::End at;  // a port of a router or HCA; its output lane
    std::uint8_t lane;
    bool accepted;
  };
  std::vector<Signal> signals;
  std::size_t signal_first = 0;
  std::size_t signal_count = 0;
  // From an input lane to whoever sends into it.
  void signal_back(unsigned unit, unsigned port, unsigned lane, bool accepted, emu::Cycle now) {
    CHECK(signal_count < signals.size());
    signals[(signal_first + signal_count++) % signals.size()] = {
        now + static_cast<emu::Cycle>(spec.link_delay), links.far(unit, port),
        static_cast<std::uint8_t>(lane), accepted};
  }

  bool traditional() const { return spec.router == RouterKind::traditional; }
  bool full_crossbar() const { return spec.crossbar == CrossbarKind::full; }
  bool circuits() const { return spec.router == RouterKind::circuit; }
  bool cut_through() const { return spec.router == RouterKind::cut_through; }
  bool preemptive() const { return spec.router == RouterKind::preemptive; }
  unsigned level_of(const hca::Message& message) const {
    return levels == 1 ? 0 : levels - 1 - static_cast<unsigned>(message.traffic_class);
  }
  // At the input of a crossbar each queue has its stamps, at its output each lane.
  unsigned stamped_levels() const { return full_crossbar() ? 1 : levels; }
  static unsigned queue_of(unsigned lane, unsigned level) { return level * emu::kVlCount + lane; }
  static unsigned level_of(unsigned queue) { return queue / emu::kVlCount; }
  bool is_full(const OutputLane& lane) const {
    return lane.flits.size() == static_cast<std::uint32_t>(spec.vc_buf_size);
  }
};

// Circuits may have more lanes than there are to count them on.
inline void add(LaneCounters& sum, const LaneCounters& more) {
  sum.flits += more.flits;
  sum.packets += more.packets;
}

// `levels`: queues of a lane that have a stamp of their own.
void configure_schedulers(PortClock& clock, Arbiter& arbiter, const World& world,
                          const ClockRules& rules, unsigned levels);

// An acknowledgement passes the router of a circuit, on an output lane of it: a refusal frees that
// lane. Returns the input lane of the circuit.
QueueAt pass_signal(Router& router, const World::Signal& signal);

}  // namespace fabric::general
