// What a Network does without knowing its scheduler, and what it asks of the engine that knows.
// Private to fabric/router: network.cc and engine.h.
#pragma once

#include <algorithm>
#include <memory>
#include <vector>

#include "emu/lane/planes.h"
#include "fabric/route/detour.h"
#include "fabric/route/routing.h"
#include "fabric/router/network.h"
#include "hca/wire/events.h"
#include "hca/wire/launch.h"
#include "hca/wire/message.h"

namespace fabric {

// An input lane whose first message cannot go on.
struct Wait {
  emu::RouterId router;
  emu::PortId in_port;
  emu::Vl in_lane;
  emu::PortId out_port;
  emu::Vl out_lane;
  bool owns;  // the output lane, which is full; else another input lane has it
};

struct Network::Impl {
  Impl(const NetworkSpec& network_spec, Graph network_graph, ControlHook* control_hook);
  virtual ~Impl() = default;

  // Executes cycles; each in the order launches, HCAs, routers.
  virtual void step(emu::Cycle cycles) = 0;
  // A message whose launch has come goes to the wire half of its source.
  virtual void ready(hca::MessageId id) = 0;
  // Stamps are counted from an epoch that moved on by so many cycles.
  virtual void age(std::uint64_t moved) = 0;
  // False: this engine tells of no heads.
  virtual bool watch_heads(HeadWatcher*) { return false; }
  // Ends the running energy window; next_window is then the end of the next one.
  virtual void close_window() = 0;
  // So many windows more have ended, in which nothing was done.
  virtual void windows_passed(std::uint64_t /*count*/) {}
  virtual void set_weights(emu::RouterId router, emu::PortId port, const emu::VlWeights& w) = 0;
  virtual void set_wire_weights(emu::NodeId node, const emu::VlWeights& w) = 0;
  virtual void set_vtick(emu::RouterId router, emu::PortId port, emu::Vl vl, emu::Vtick vtick) = 0;
  virtual void set_wire_vtick(emu::NodeId node, emu::Vl vl, emu::Vtick vtick) = 0;
  virtual PortCounters router_counters(emu::RouterId router, emu::PortId port) const = 0;
  virtual PortCounters wire_counters(emu::NodeId node) const = 0;
  virtual LinkFlits link_flits(emu::RouterId router, emu::PortId port) const = 0;
  virtual Occupancy occupancy(emu::RouterId router, emu::PortId port) const = 0;
  virtual int wire_backlog(emu::NodeId node) const = 0;
  virtual std::string audit() const = 0;
  // Heads that wait for an output lane or for room in it: router, input lane, output lane, owner.
  virtual std::vector<Wait> waits() const = 0;

  // The order in which routers are stepped has been set.
  virtual void order_changed() {}

  void jump(emu::Cycle cycle);
  // The last delivery's credit needs a link's delay to come home.
  bool idle() const { return idle_at(now); }
  bool idle_at(emu::Cycle cycle) const {
    const emu::Cycle home = events.last_done + static_cast<emu::Cycle>(spec.link_delay);
    return events.live == 0 && (events.last_done == 0 || cycle > home);
  }
  hca::LaunchQueue& launches_of(emu::NodeId node) {
    return launches[part_of_group[node / emu::kPortsMax]];
  }
  emu::Cycle next_launch() const {
    emu::Cycle next = emu::kNever;
    for (const hca::LaunchQueue& queue : launches) next = std::min(next, queue.next());
    return next;
  }

  // After every step: whether anything has moved since the last look, watchdog_cycles ago.
  void watch();
  // A number that stays the same only if no flit has gone over a link and nothing has arrived.
  std::uint64_t position() const;

  NetworkSpec spec;
  Graph graph;
  Routes routes;  // set before the first cycle; further versions by set_down
  std::vector<std::vector<LinkEnd>> down_of_version = {{}};  // sorted, each link by its lower end
  std::size_t version = 0;                                   // in force
  hca::MessageTable messages;
  hca::Events events;
  std::size_t parts;                        // that different threads step (parts.h)
  std::vector<std::uint8_t> part_of_group;  // [group of eight HCAs]
  std::vector<hca::LaunchQueue> launches;   // [part]
  ControlHook* hook;
  emu::Cycle now;
  emu::Cycle next_window;  // first cycle of the next energy window
  std::vector<ActivityWindow> windows;
  std::vector<emu::RouterId> order;
  DesignCounters design;
  // The watchdog: when it looks next, what it saw, and the sentence it has to say.
  emu::Cycle next_watch = 0;
  emu::Cycle watch_done = 0;   // last delivery it knows of ...
  emu::Cycle watch_since = 0;  // ... and when it first saw it
  std::uint64_t watch_position = 0;
  bool watch_busy = false;  // messages were under way, and the network has not been idle since
  std::string stuck;
};

// One function per file, so that the engines compile in parallel; fcfs, virtual_clock and fgvc
// share one.
std::unique_ptr<Network::Impl> make_stamp_engine(const NetworkSpec&, Graph, ControlHook*);
std::unique_ptr<Network::Impl> make_traditional_engine(const NetworkSpec&, Graph, ControlHook*);
std::unique_ptr<Network::Impl> make_turn_engine(const NetworkSpec&, Graph, ControlHook*);
std::unique_ptr<Network::Impl> make_weight_engine(const NetworkSpec&, Graph, ControlHook*);
// Every design (general_engine.h).
std::unique_ptr<Network::Impl> make_general_engine(const NetworkSpec&, Graph, ControlHook*);
// The cell switch (cell_engine.h), a queue for each pair of nodes.
inline constexpr std::size_t kCellNodesMax = 128;
std::unique_ptr<Network::Impl> make_cell_engine(const NetworkSpec&, Graph, ControlHook*);

}  // namespace fabric
