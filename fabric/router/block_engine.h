// The fast engine for one pair of schedulers, InputScheduler at the crossbar inputs,
// SourceScheduler at the HCAs, and for buffers of less than 2^kPlanes flits. Instantiated by
// engine_*.cc; seen by others as Network::Impl.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "emu/base/check.h"
#include "emu/base/huge.h"
#include "fabric/link/rows.h"
#include "fabric/router/block_step.h"
#include "fabric/router/impl.h"
#include "fabric/router/parts.h"
#include "hca/wire/wire_block.h"

namespace fabric {

template <int kPlanes, class InputScheduler, class SourceScheduler>
class BlockEngine final : public Network::Impl {
 public:
  // Of a step for large buffers there is none: it takes as long as by AVX2 and twice the compiler.
  static constexpr bool kStepsByAvx512 = kPlanes == emu::kPlanesSmall || !emu::kStepsByAvx2;

  BlockEngine(const NetworkSpec& network_spec, Graph network_graph, ControlHook* control_hook)
      : Impl(network_spec, std::move(network_graph), control_hook),
        packing_(graph, static_cast<int>(parts)),
        parts_(*this, packing_.blocks().size(), emu::kBlockPorts,
               [this](std::size_t part, emu::Cycle from, emu::Cycle end) {
                 step_part(*this, isa_, part, from, end);
               }),
        rows_(packing_, graph.nodes.size(), spec.link_delay, parts_.ahead()),
        blocks_(rows_.router_blocks()),
        order_of_part_(parts_.count()) {
    CHECK(parts_.routers_of(parts_.count() - 1).end == blocks_.size());
    CHECK(parts_.hcas_of(parts_.count() - 1).end == rows_.node_blocks());
    for (std::size_t i = 0; i < blocks_.size(); ++i) set_up(i);
    wires_.reserve(rows_.node_blocks());
    for (std::size_t part = 0; part < parts_.count(); ++part) {
      const Parts::Range range = parts_.hcas_of(part);
      for (std::size_t i = range.first; i < range.end; ++i) add_wires(i, parts_.events_of(part));
    }
    order_changed();
  }

  void step(emu::Cycle cycles) override { parts_.step(cycles); }
  // Cycles of one part; called by step_part().
  template <emu::Isa kIsa>
  void run(std::size_t part, emu::Cycle begin, emu::Cycle stretch_end) {
    const blocks::BlockWorld world = {.messages = messages,
                                      .routes = routes,
                                      .hook = hook,
                                      .fixed_classes = spec.fixed_classes,
                                      .buffer = static_cast<unsigned>(spec.vc_buf_size),
                                      .alloc_iters = spec.alloc_iters,
                                      .control = spec.first_lanes(),
                                      .yields = yields()};
    const Mine mine = {order_of_part_[part], parts_.hcas_of(part)};
    parts_.run(
        part, begin, stretch_end,
        [this](hca::MessageId id, emu::Cycle cycle) {
          wires_of(messages[id].src).ready(id, cycle);
        },
        [&](emu::Cycle from, emu::Cycle end) { cycles_until<kIsa>(mine, world, from, end); });
  }
  void order_changed() override {
    std::vector<bool> seen(blocks_.size(), false);
    for (std::size_t part = 0; part < parts_.count(); ++part) {
      const Parts::Range range = parts_.routers_of(part);
      order_of_part_[part].clear();
      for (const emu::RouterId r : order) {
        const std::size_t block = packing_.block_of(r);
        if (seen[block] || block < range.first || block >= range.end) continue;
        seen[block] = true;
        order_of_part_[part].push_back(block);
      }
    }
  }
  void ready(hca::MessageId id) override {
    ++events.live;
    wires_of(messages[id].src).ready(id, now);
  }
  void age(std::uint64_t moved) override {
    for (auto& block : blocks_) {
      State& b = block.state;
      if constexpr (InputScheduler::kStampsBids) block.scheduler.age(b.bids, moved);
      for (unsigned p = 0; p < emu::kBlockPorts; ++p) {
        b.wait_cycles[p] += b.out.recent_wait[p];
        b.arrived_before[p] += b.in.arrived[p];
      }
      b.out.recent_wait = {};
      b.in.arrived = {};
    }
    for (auto& wires : wires_) {
      wires.age(moved);
      wires.flush_counters();
    }
  }
  void close_window() override {
    const auto length = static_cast<emu::Cycle>(spec.energy_window);
    for (std::size_t i = 0; i < graph.routers.size(); ++i) {
      const auto router = static_cast<emu::RouterId>(i);
      const ActivityWindow window = activity_of(router, next_window - length);
      if (window.arrived + window.crossed + window.sent + window.heads == 0) continue;
      const std::size_t most = Network::kActivityWindowsMax * graph.routers.size();
      if (windows.size() >= most) windows.erase(windows.begin());
      windows.push_back(window);
    }
    next_window += length;
  }

  // Of ports that lead nowhere nothing is kept.
  void set_weights(emu::RouterId router, emu::PortId port, const emu::VlWeights& w) override {
    const unsigned p = packing_.place(router, port);
    if (p != Packing::kNowhere) scheduler_of(router).set_weights(p, w);
  }
  void set_wire_weights(emu::NodeId node, const emu::VlWeights& w) override {
    wires_of(node).scheduler().set_weights(node % emu::kBlockPorts, w);
  }
  void set_vtick(emu::RouterId router, emu::PortId port, emu::Vl vl, emu::Vtick vtick) override {
    const unsigned p = packing_.place(router, port);
    if (p != Packing::kNowhere) scheduler_of(router).set_vtick(emu::block_lane(p, vl), vtick);
  }
  void set_wire_vtick(emu::NodeId node, emu::Vl vl, emu::Vtick vtick) override {
    wires_of(node).scheduler().set_vtick(emu::block_lane(node % emu::kBlockPorts, vl), vtick);
  }

  PortCounters router_counters(emu::RouterId router, emu::PortId port) const override {
    const State& b = state_of(router);
    const unsigned p = packing_.place(router, port);
    PortCounters counters;
    if (p == Packing::kNowhere) return counters;
    for (unsigned v = 0; v < emu::kVlCount; ++v) {
      counters.received[v] = b.in_messages[emu::block_lane(p, v)].traffic;
      counters.sent[v] = b.out_messages[emu::block_lane(p, v)].traffic;
    }
    counters.wait_cycles = b.wait_cycles[p] + b.out.recent_wait[p];
    return counters;
  }
  LinkFlits link_flits(emu::RouterId router, emu::PortId port) const override;
  PortCounters wire_counters(emu::NodeId node) const override {
    const Wires& wires = wires_[node / emu::kBlockPorts];
    const unsigned n = node % emu::kBlockPorts;
    PortCounters counters;
    for (unsigned v = 0; v < emu::kVlCount; ++v) {
      counters.sent[v] = {wires.sent(n, v).flits, wires.sent(n, v).packets};
      counters.received[v] = {wires.received(n, v).flits, wires.received(n, v).packets};
    }
    counters.wait_cycles = wires.wait_cycles(n);
    return counters;
  }
  Network::Occupancy occupancy(emu::RouterId router, emu::PortId port) const override {
    const State& b = state_of(router);
    const unsigned p = packing_.place(router, port);
    Network::Occupancy occupancy;
    if (p == Packing::kNowhere) return occupancy;
    for (unsigned v = 0; v < emu::kVlCount; ++v) {
      occupancy.input[v] = static_cast<std::uint8_t>(b.in.held.get(p, v));
      occupancy.output[v] = static_cast<std::uint8_t>(b.out.held.get(p, v));
    }
    return occupancy;
  }
  int wire_backlog(emu::NodeId node) const override {
    return wires_[node / emu::kBlockPorts].backlog(node % emu::kBlockPorts);
  }
  std::string audit() const override;
  std::vector<Wait> waits() const override;

 private:
  using Routers = blocks::RouterBlock<kPlanes, InputScheduler>;
  using State = blocks::Block<kPlanes>;
  using Wires = hca::WireBlock<kPlanes, SourceScheduler>;

  const State& state_of(emu::RouterId router) const {
    return blocks_[packing_.block_of(router)].state;
  }
  State& state_of(emu::RouterId router) { return blocks_[packing_.block_of(router)].state; }
  InputScheduler& scheduler_of(emu::RouterId router) {
    return blocks_[packing_.block_of(router)].scheduler;
  }
  Wires& wires_of(emu::NodeId node) { return wires_[node / emu::kBlockPorts]; }

  template <class Scheduler>
  void configure(Scheduler& scheduler, emu::SchedulerKind kind) {
    scheduler.configure(kind, spec.lane_vtick, spec.first_lanes());
    for (unsigned p = 0; p < emu::kBlockPorts; ++p) scheduler.set_weights(p, spec.weights);
  }
  void set_up(std::size_t index) {
    State& b = blocks_[index].state;
    const Packing::Block& packed = packing_.blocks()[index];
    b.ports = packed.ports;
    b.claim.fill(blocks::kNoClaim);
    b.owner.fill(blocks::kNoBlockLane);
    for (unsigned i = 0; i < packed.routers; ++i)
      set_up_router(b, static_cast<emu::RouterId>(packed.first_router + i));
    configure(blocks_[index].scheduler, spec.router_scheduler());
  }
  void set_up_router(State& b, emu::RouterId router) {
    const std::vector<PortEnd>& ends = graph.routers[router];
    const unsigned first = packing_.first_port(router);
    for (unsigned number = 0; number < ends.size(); ++number) {
      const unsigned p = packing_.place(router, number);
      if (p == Packing::kNowhere) continue;
      b.first[p] = static_cast<std::uint8_t>(first);
      b.number[p] = static_cast<std::uint8_t>(number);
      b.router[p] = router;
      b.place[first][number] = static_cast<std::uint8_t>(p);
      b.peer[p] = rows_.peer_of(ends[number]);
      const bool to_hca = !rows_.is_router(b.peer[p]);
      const bool to_sink = to_hca && spec.credits_in_time();
      b.to_hca |= std::uint64_t{to_hca} << p;
      b.out.metered[p] = to_sink ? 0 : 0xffff;
      for (unsigned v = 0; v < emu::kVlCount; ++v)
        b.out.credits.set(p, v, static_cast<unsigned>(spec.vc_buf_size));
    }
  }
  void add_wires(std::size_t index, hca::Events& events_of_part) {
    const auto first = static_cast<unsigned>(index * emu::kBlockPorts);
    const auto count =
        std::min<unsigned>(emu::kBlockPorts, static_cast<unsigned>(graph.nodes.size()) - first);
    Wires& wires = wires_.emplace_back(
        typename Wires::Setting{first, count, static_cast<unsigned>(spec.vc_buf_size),
                                spec.answer_flits, yields(), !spec.credits_in_time()},
        messages, events_of_part);
    for (unsigned n = 0; n < count; ++n) {
      const NodePlace& place = graph.nodes[first + n];
      wires.lead_to(n, rows_.port_of(place.router, place.port));
    }
    configure(wires.scheduler(), spec.wire_scheduler());
  }
  emu::LaneMask yields() const { return spec.strict_classes ? spec.lanes_of_class[2] : 0; }

  // What happened in the window that began in `begin`; the next one begins. Only arrivals are
  // counted flit by flit: what has gone on is what is no longer there.
  ActivityWindow activity_of(emu::RouterId router, emu::Cycle begin) {
    State& b = state_of(router);
    const unsigned first = packing_.first_port(router);
    blocks::RouterActivity& activity = b.activity[first];
    std::uint32_t arrived = 0;
    std::uint32_t in_now = 0;
    std::uint32_t out_now = 0;
    std::uint32_t from_hcas = 0;
    std::uint32_t to_routers = 0;  // since construction
    for (unsigned p = first; p < packing_.end_port(router); ++p) {
      const std::uint32_t came = b.arrived_before[p] + b.in.arrived[p];
      const std::uint32_t held = b.out.held.sum(p);
      arrived += came;
      if ((b.to_hca >> p & 1U) != 0) {
        from_hcas += came;
      } else {
        to_routers += b.tails_crossed[p] + tails_due(b, p) - held;
      }
      b.arrived_before[p] = b.in.arrived[p] = 0;
      in_now += b.in.held.sum(p);
      out_now += held;
    }
    const std::uint32_t crossed = activity.in_held + arrived - in_now;
    const std::uint32_t sent = activity.out_held + crossed - out_now;
    const std::uint32_t sent_on = to_routers - activity.to_routers;
    const ActivityWindow window = {begin, router,         arrived, crossed,
                                   sent,  activity.heads, sent_on, from_hcas + sent - sent_on};
    activity = {.heads = 0, .in_held = in_now, .out_held = out_now, .to_routers = to_routers};
    return window;
  }
  // Flits that have crossed to an output port of messages whose tails have not.
  static std::uint32_t tails_due(const State& b, unsigned port) {
    std::uint32_t flits = 0;
    for (unsigned lanes = b.owned[port]; lanes != 0; lanes &= lanes - 1) {
      const blocks::BlockLane in = b.owner[emu::block_lane(port, emu::first_of(lanes))];
      flits += std::uint32_t{b.in_messages[in].flits} - b.left[in];
    }
    return flits;
  }

  // What a part steps.
  struct Mine {
    const std::vector<std::size_t>& blocks;  // in this order
    Parts::Range wires;
  };
  template <emu::Isa kIsa>
  void cycles_until(const Mine& mine, const blocks::BlockWorld& world, emu::Cycle cycle,
                    emu::Cycle end) {
    const auto delay = static_cast<emu::Cycle>(rows_.delay());
    do {
      emu::LinkBlock* here = rows_.row(cycle);
      emu::LinkBlock* there = rows_.row(cycle + delay);
      step_groups<kIsa>(mine.wires, here, there, cycle);
      step_routers<kIsa>(mine.blocks, here, there, world, cycle);
    } while (++cycle != end);
  }
  template <emu::Isa kIsa>
  void step_groups(const Parts::Range& wires, emu::LinkBlock* here, emu::LinkBlock* there,
                   emu::Cycle cycle) {
    for (std::size_t w = wires.first; w < wires.end; ++w)
      wires_[w].template step<kIsa>(here[blocks_.size() + w], there, cycle);
  }
  // What every cycle reads of a block, while the one before it is stepped.
  void fetch(std::size_t block, const emu::LinkBlock& links) const {
    constexpr std::size_t kLine = 64;
    const auto fetch_lines = [](const void* from, std::size_t bytes) {
      const auto* at = static_cast<const std::byte*>(from);
      for (std::size_t line = 0; line < bytes; line += kLine) __builtin_prefetch(at + line);
    };
    const State& b = blocks_[block].state;
    fetch_lines(&b.out, sizeof b.out);
    fetch_lines(&b.in, sizeof b.in);
    fetch_lines(&b.open, sizeof b.open);
    if constexpr (InputScheduler::kStampsBids) fetch_lines(&b.bids, sizeof b.bids);
    fetch_lines(&links.flits, sizeof links.flits + sizeof links.credits);
  }
  template <emu::Isa kIsa>
  void step_routers(const std::vector<std::size_t>& mine, emu::LinkBlock* here,
                    emu::LinkBlock* there, const blocks::BlockWorld& world, emu::Cycle cycle) {
    const bool fetches = mine.size() >= kBlocksFar;
    for (std::size_t n = 0; n < mine.size(); ++n) {
      const std::size_t i = mine[n];
      if (fetches && n + 1 != mine.size()) fetch(mine[n + 1], here[mine[n + 1]]);
      blocks::step_block<kIsa>(blocks_[i], here[i], there, world, cycle);
    }
  }

  std::string audit_link(emu::LinkPlace peer, emu::LinkPlace self, unsigned vl,
                         unsigned credits) const;
  std::string audit_sum(unsigned vl, unsigned sum) const;
  std::string audit_router(emu::RouterId router) const;

  // So many do not stay in a cache from one cycle to the next.
  static constexpr std::size_t kBlocksFar = 16;

  emu::Isa isa_ = best_isa(spec.isa_max);
  Packing packing_;
  Parts parts_;
  LinkRows rows_;
  std::vector<Routers, emu::HugePages<Routers>> blocks_;
  std::vector<Wires, emu::HugePages<Wires>> wires_;
  std::vector<std::vector<std::size_t>> order_of_part_;  // of blocks
};

}  // namespace fabric

#include "fabric/router/block_look.h"
