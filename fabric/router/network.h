// The whole fabric and the wire half of every attached HCA: packets in, events out, cycle by cycle.
// Called by fabric/daemon, tests/sim, tests/bench/engine. No I/O, no wall clock;
// nothing is allocated after construction. What happens in which cycle is written in README.md
// beside this file.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "emu/base/result.h"
#include "emu/base/units.h"
#include "emu/lane/policy.h"
#include "fabric/route/detour.h"
#include "fabric/router/control_hook.h"
#include "fabric/router/head_watcher.h"
#include "fabric/router/spec.h"
#include "hca/wire/packet.h"

namespace fabric {

// Counted when a tail or a circuit's probe crosses the crossbar (router) or passes the link (HCA).
struct LaneCounters {
  std::uint64_t flits = 0;
  std::uint64_t packets = 0;
};

struct PortCounters {
  std::array<LaneCounters, emu::kVlCount> sent{};  // through this port towards its link, by lane
  std::array<LaneCounters, emu::kVlCount> received{};  // from its link, by lane
  std::uint64_t wait_cycles =
      0;  // a flit was there, none could leave: no lane of them had a credit
};

// Flits that have come from the link of a port and gone onto it since construction, each counted in
// the cycle in which the router takes or gives it. PortCounters count whole messages, at their
// tails.
struct LinkFlits {
  std::uint64_t in = 0;
  std::uint64_t out = 0;
};

// What a router did in one energy window; windows in which it did nothing are left out. Per flit:
// arrived = one input-buffer write; crossed = input-buffer read, crossbar, output-buffer write and
// one scheduler decision; sent = output-buffer read; sent_to_routers = and a link between routers;
// hca_flits = it came from an HCA or went to one; heads = output-lane arbitration of a message.
struct ActivityWindow {
  emu::Cycle begin;
  emu::RouterId router;
  std::uint32_t arrived;
  std::uint32_t crossed;
  std::uint32_t sent;
  std::uint32_t heads;
  std::uint32_t sent_to_routers;  // of those sent
  std::uint32_t hca_flits;        // of those arrived and of those sent
};

// What only some designs do; all routers, since construction.
struct DesignCounters {
  std::uint64_t interruptions = 0;     // preemptive: a message had to make way at an input lane ...
  std::uint64_t dummy_flits = 0;       // ... and dummy tails and headers that came of it
  std::uint64_t quenches = 0;          // cell: stops sent to sources
  std::uint64_t recoveries = 0;        // routing recovery: messages that got the token
  std::uint64_t circuits_asked = 0;    // circuit: probes sent,
  std::uint64_t circuits_made = 0;     // that came through,
  std::uint64_t circuits_dropped = 0;  // that were blocked
};

class Network {
 public:
  // Fails with a message that names the field and its range. `hook` may be null: every probe is
  // accepted; otherwise it must outlive the network.
  static emu::Result<std::unique_ptr<Network>> make(const NetworkSpec& spec,
                                                    ControlHook* hook = nullptr);
  ~Network();
  Network(const Network&) = delete;
  Network& operator=(const Network&) = delete;

  // Tells `watcher` of all heads from now on, until another is named; null: nobody. False: this
  // engine cannot (only the general one can: NetworkSpec::general_engine).
  bool watch(HeadWatcher* watcher);

  int nodes() const;
  int routers() const;
  int ports(emu::RouterId router) const;
  // Where node n is attached.
  emu::RouterId router_of(emu::NodeId node) const;
  emu::PortId port_of(emu::NodeId node) const;
  // Who is attached there, or kNoNode.
  emu::NodeId node_at(emu::RouterId router, emu::PortId port) const;
  // Routers that a packet crosses from src to dest.
  int hops(emu::NodeId src, emu::NodeId dest) const;
  // These routers: the fixed way of packets that leave from now on.
  std::vector<Hop> path(emu::NodeId src, emu::NodeId dest) const;
  // Output port of `router` for packets to `dest` that leave from now on.
  emu::PortId route(emu::RouterId router, emu::NodeId dest) const;
  // That port first, and what else the routing may choose.
  std::span<const Choice> choices(emu::RouterId router, emu::NodeId dest) const;
  // A neighbour over a link, or {kNoRouter, 0} where an HCA or nothing is attached.
  struct Peer {
    emu::RouterId router;
    emu::PortId port;
  };
  Peer peer(emu::RouterId router, emu::PortId port) const;

  // These links between routers, each by one of its ends, are out of service from the next cycle
  // on, all others in it. Packets whose heads leave their HCAs then go round them; those under way
  // go on by the ways they began, so a link drains and nothing is lost. An error says why not, and
  // nothing changes: the routing knows no way round (only up_down and up_by_load do), nodes would
  // be cut off, the design has ways of its own (circuit, cell), or packets under way still go by
  // kRouteVersionsMax other sets of links. Allocates; a set that was down before takes no time.
  static constexpr std::size_t kRouteVersionsMax = 16;
  emu::Result<void> set_down(std::span<const LinkEnd> links);
  std::span<const LinkEnd> down() const;

  // Next cycle to be executed.
  emu::Cycle now() const;

  // False: `packets_per_node` packets of this node are under way (or delivered and not yet
  // drained); try again after a clear_events(). Never fails otherwise: bad fields are bugs of the
  // caller (CHECK). The packet is ready to leave in cycle max(launch, now()).
  bool submit(emu::NodeId src, const hca::SendPacket& packet);
  // Packets that submit(src) would still take.
  int room(emu::NodeId src) const;

  // Executes cycles now() ... now() + cycles - 1.
  void step(emu::Cycle cycles);
  // Executes up to, not including, `cycle`; jumps over cycles in which nothing can happen.
  void run_until(emu::Cycle cycle);
  // Nothing is in the fabric or ready to leave; packets with a later launch may wait.
  bool idle() const;
  // Earliest cycle in which something can happen: now() unless idle, else the next launch, or
  // kNever.
  emu::Cycle next_event_cycle() const;
  // Moves the clock on without executing; the network must be idle and have no launch before
  // `cycle`. The first use may come before any submit: the clock of a fabric that was restarted.
  void skip_to(emu::Cycle cycle);

  // Events since the last clear_events, in order of cycles. Within a cycle by node.
  std::span<const hca::InjectedEvent> injected() const;
  std::span<const hca::DeliveredEvent> delivered() const;
  std::span<const hca::AnswerEvent> answers() const;
  // Windows since the last clear_events; the oldest are dropped beyond kActivityWindowsMax a
  // router.
  std::span<const ActivityWindow> activity() const;
  static constexpr int kActivityWindowsMax = 256;
  void clear_events();

  // Takes effect from the next cycle on. wrr and two_level only; spent weights start afresh.
  void set_weights(emu::RouterId router, emu::PortId in_port, const emu::VlWeights& weights);
  void set_wire_weights(emu::NodeId node, const emu::VlWeights& weights);
  // virtual_clock only.
  void set_lane_vtick(emu::RouterId router, emu::PortId in_port, emu::Vl vl, emu::Vtick vtick);
  void set_wire_vtick(emu::NodeId node, emu::Vl vl, emu::Vtick vtick);

  // Counters since construction.
  PortCounters router_counters(emu::RouterId router, emu::PortId port) const;
  PortCounters wire_counters(emu::NodeId node) const;
  LinkFlits link_flits(emu::RouterId router, emu::PortId port) const;
  // Flits of each lane now in the input and the output buffer of a port.
  struct Occupancy {
    std::array<std::uint8_t, emu::kVlCount> input{};
    std::array<std::uint8_t, emu::kVlCount> output{};
  };
  Occupancy occupancy(emu::RouterId router, emu::PortId port) const;
  DesignCounters design_counters() const;
  // Packets ready and not yet wholly injected at a node's wire half.
  int wire_backlog(emu::NodeId node) const;

  // For tests. Routers are stepped in this order (a permutation); the result must not depend on it.
  void set_step_order(std::span<const emu::RouterId> order);
  // Empty, or a sentence about the first broken invariant: credits and flits of every link lane add
  // up to its buffer, no output lane has two owners, every message is somewhere. Slow.
  std::string audit() const;
  // Empty, or a sentence that names waiting lanes, if there are lanes: messages are under way and
  // nothing has moved (deadlock), or flits move and nothing arrives (livelock), for
  // NetworkSpec::watchdog_cycles.
  const std::string& stuck() const;
  // Hash of what every message did since the start; equal runs have equal hashes.
  std::uint64_t digest() const;

  struct Impl;  // fabric/router/impl.h
 private:
  explicit Network(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace fabric
