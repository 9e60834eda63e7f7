// What is asked of a BlockEngine between cycles: does everything add up, has anything moved, who
// waits. Included by block_engine.h only.
#pragma once

#include <fmt/format.h>

#include <bit>

#include "fabric/router/block_engine.h"

namespace fabric {

// Empty, or that flits and credits of one lane of a link do not add up to its buffer: at the sender
// (`credits`), in the rows, and at the peer.
template <int kPlanes, class I, class S>
std::string BlockEngine<kPlanes, I, S>::audit_link(emu::LinkPlace peer, emu::LinkPlace self,
                                                   unsigned vl, unsigned credits) const {
  unsigned sum = credits;
  if (rows_.is_router(peer))
    sum += blocks_[emu::block_of_place(peer)].state.in.held.get(
        static_cast<unsigned>(emu::port_of_place(peer)), vl);
  for (int d = 0; d < rows_.delay(); ++d) {
    const emu::LinkBlock* row = rows_.row(now + static_cast<emu::Cycle>(d));
    sum += row[emu::block_of_place(peer)].flits[emu::port_of_place(peer)] >> vl & 1U;
    sum += row[emu::block_of_place(self)].credits[emu::port_of_place(self)] >> vl & 1U;
  }
  return audit_sum(vl, sum);
}

template <int kPlanes, class I, class S>
std::string BlockEngine<kPlanes, I, S>::audit_sum(unsigned vl, unsigned sum) const {
  if (sum == static_cast<unsigned>(spec.vc_buf_size)) return {};
  return fmt::format("lane {}: flits and credits are {}, not {}", vl, sum, spec.vc_buf_size);
}

// What has come and gone on with its tail, the part of the front messages that has gone on, and
// what is held.
template <int kPlanes, class I, class S>
LinkFlits BlockEngine<kPlanes, I, S>::link_flits(emu::RouterId router, emu::PortId port) const {
  const State& b = state_of(router);
  const unsigned p = packing_.place(router, port);
  LinkFlits flits;
  if (p == Packing::kNowhere) return flits;
  for (unsigned v = 0; v < emu::kVlCount; ++v) {
    const unsigned lane = emu::block_lane(p, v);
    const blocks::InputMessages& in = b.in_messages[lane];
    flits.in += in.traffic.flits;
    if (in.count != 0) flits.in += std::uint64_t{in.flits} - b.left[lane];
    flits.out += b.out_messages[lane].traffic.flits;
  }
  flits.in += b.in.held.sum(p);
  flits.out += tails_due(b, p);
  flits.out -= b.out.held.sum(p);
  return flits;
}

template <int kPlanes, class I, class S>
std::string BlockEngine<kPlanes, I, S>::audit_router(emu::RouterId router) const {
  const State& b = state_of(router);
  unsigned owners = 0;
  unsigned owned = 0;
  for (unsigned p = packing_.first_port(router); p < packing_.end_port(router); ++p) {
    owned += static_cast<unsigned>(std::popcount(b.owned[p]));
    for (unsigned v = 0; v < emu::kVlCount; ++v) {
      const unsigned lane = emu::block_lane(p, v);
      if (b.out.held.get(p, v) > static_cast<unsigned>(spec.vc_buf_size))
        return fmt::format("output lane {} holds too much", lane);
      if (b.owner[lane] != blocks::kNoBlockLane) {
        ++owners;
        if (b.bids.out_lane(b.owner[lane]) != lane)
          return fmt::format("output lane {} has an owner that is elsewhere", lane);
      }
      const std::string wrong = b.out.metered[p] == 0
                                    ? audit_sum(v, b.out.credits.get(p, v))
                                    : audit_link(b.peer[p], rows_.port_of(router, b.number[p]), v,
                                                 b.out.credits.get(p, v));
      if (!wrong.empty()) return wrong;
    }
  }
  if (owners != owned) return fmt::format("{} lanes owned by {} messages", owned, owners);
  return {};
}

template <int kPlanes, class I, class S>
std::string BlockEngine<kPlanes, I, S>::audit() const {
  for (std::size_t n = 0; n < graph.nodes.size(); ++n) {
    const NodePlace& place = graph.nodes[n];
    for (unsigned v = 0; v < emu::kVlCount; ++v) {
      const std::string wrong = audit_link(
          rows_.port_of(place.router, place.port), rows_.port_of_node(static_cast<emu::NodeId>(n)),
          v, wires_[n / emu::kBlockPorts].credits(n % emu::kBlockPorts, v));
      if (!wrong.empty()) return fmt::format("node {}: {}", n, wrong);
    }
  }
  for (std::size_t index = 0; index < graph.routers.size(); ++index) {
    const std::string wrong = audit_router(static_cast<emu::RouterId>(index));
    if (!wrong.empty()) return fmt::format("router {}: {}", index, wrong);
  }
  for (const auto& block : blocks_) {
    std::uint32_t inside = 0;
    for (unsigned p = 0; p < emu::kBlockPorts; ++p)
      inside += block.state.in.held.sum(p) + block.state.out.held.sum(p);
    if (inside != block.state.inside)
      return fmt::format("routers from {} on: {} flits, not {}", block.state.router[0], inside,
                         block.state.inside);
  }
  return {};
}

template <int kPlanes, class I, class S>
std::vector<Wait> BlockEngine<kPlanes, I, S>::waits() const {
  std::vector<Wait> found;
  for (std::size_t index = 0; index < graph.routers.size(); ++index) {
    const auto router = static_cast<emu::RouterId>(index);
    const State& b = state_of(router);
    const auto add = [&](unsigned in_lane, unsigned out_lane, bool owns) {
      const auto port = [&b](unsigned lane) {
        return static_cast<emu::PortId>(b.number[emu::port_of_lane(lane)]);
      };
      found.push_back({router, port(in_lane), static_cast<emu::Vl>(emu::vl_of_lane(in_lane)),
                       port(out_lane), static_cast<emu::Vl>(emu::vl_of_lane(out_lane)), owns});
    };
    for (unsigned vl = 0; vl < emu::kVlCount; ++vl) {
      for (unsigned p = packing_.first_port(router); p < packing_.end_port(router); ++p) {
        const unsigned o = emu::block_lane(p, vl);
        if (b.owner[o] == blocks::kNoBlockLane) continue;
        if ((b.out.full[p] >> vl & 1U) != 0) add(b.owner[o], o, true);
        for (unsigned i = b.out_messages[o].wait_first; i != blocks::kNoBlockLane;
             i = b.in_messages[i].wait_next)
          add(i, o, false);
      }
    }
  }
  return found;
}

}  // namespace fabric
