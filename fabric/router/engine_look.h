// What an engine can be asked about itself between steps: does it add up, has anything moved, who
// waits for whom. Part of engine.h.
#pragma once

#include <string>
#include <vector>

#include "fabric/router/engine.h"

namespace fabric {

// Flits and credits of one link lane that are not at the sender: in the wheel, in the receiver's
// buffer.
template <int kPlanes, class I, class S, class M>
unsigned Engine<kPlanes, I, S, M>::buffered(const emu::Outlet& outlet, unsigned port,
                                            unsigned vl) const {
  const unsigned peer = outlet.unit[port];
  const unsigned peer_port = outlet.port[port];
  unsigned flits = 0;
  if (peer < routers_.size()) flits += routers_[peer].state.in_count.get(peer_port, vl);
  for (int d = 0; d < wheel_.delay(); ++d)
    flits += (wheel_.row(now + static_cast<emu::Cycle>(d))[peer].flits[peer_port] >> vl) & 1U;
  return flits;
}

// What has come and gone on with its tail, the part of the front messages that has gone on, and
// what is held.
template <int kPlanes, class I, class S, class M>
LinkFlits Engine<kPlanes, I, S, M>::link_flits(emu::RouterId router, emu::PortId port) const {
  const State& r = routers_[router].state;
  const auto gone_on = [&](unsigned in_lane) {
    return std::uint64_t{messages[r.in_messages.front(in_lane)].flits} - r.left.left(in_lane);
  };
  LinkFlits flits;
  for (unsigned v = 0; v < emu::kVlCount; ++v) {
    const unsigned lane = lane_slot(port, v);
    flits.in += r.traffic_in[lane].flits;
    if (r.in_messages.count[lane] != 0) flits.in += gone_on(lane);
    flits.out += r.traffic_out[lane].flits;
    if (r.owner[lane] != kNoLane) flits.out += gone_on(r.owner[lane]);
  }
  flits.in += r.in_count.sum(port);
  flits.out -= r.out_count.sum(port);
  return flits;
}

template <int kPlanes, class I, class S, class M>
void Engine<kPlanes, I, S, M>::look_at_links(State& r, ActivityWindow& window) const {
  std::uint64_t to_routers = 0;
  std::uint64_t by_hcas = 0;
  for (unsigned p = 0; p < graph.routers[r.id].size(); ++p) {
    const LinkFlits flits = link_flits(r.id, static_cast<emu::PortId>(p));
    if (graph.routers[r.id][p].node == kNoNode) {
      to_routers += flits.out;
    } else {
      by_hcas += flits.in + flits.out;
    }
  }
  window.sent_to_routers = static_cast<std::uint32_t>(to_routers - r.to_routers);
  window.hca_flits = static_cast<std::uint32_t>(by_hcas - r.by_hcas);
  r.to_routers = to_routers;
  r.by_hcas = by_hcas;
}

template <int kPlanes, class I, class S, class M>
std::string Engine<kPlanes, I, S, M>::audit() const {
  const auto buffer = static_cast<unsigned>(spec.vc_buf_size);
  for (unsigned u = 0; u < static_cast<unsigned>(wiring_.units()); ++u) {
    const emu::Outlet& outlet = wiring_.outlets[u];
    for (unsigned i = 0; i < emu::kLaneSlots; ++i) {
      const unsigned p = port_of_slot(i);
      const unsigned v = vl_of_slot(i);
      if (((outlet.connected >> p) & 1U) == 0 || v >= emu::kVlCount) continue;
      unsigned sum = buffered(outlet, p, v);
      sum += u < routers_.size() ? routers_[u].state.credits.get(p, v)
                                 : groups_[u - routers_.size()].credits(p, v);
      for (int d = 0; d < wheel_.delay(); ++d)
        sum += (wheel_.row(now + static_cast<emu::Cycle>(d))[u].credits[p] >> v) & 1U;
      if (sum != buffer)
        return fmt::format("unit {} port {} lane {}: flits and credits are {}, not {}", u, p, v,
                           sum, buffer);
    }
  }
  for (const auto& router : routers_) {
    const State& r = router.state;
    unsigned owners = 0;
    unsigned active = 0;
    emu::Lanes8 own = r.active;  // now or soon
    for (const emu::Lanes8 lanes : r.soon) own |= lanes;
    for (unsigned i = 0; i < emu::kLaneSlots; ++i) {
      if (vl_of_slot(i) >= emu::kVlCount) continue;
      active += (own[port_of_slot(i)] & vl_bit(i)) != 0;
      if (r.out_count.get(port_of_slot(i), vl_of_slot(i)) > buffer)
        return fmt::format("router {}: output lane {} holds too much", r.id, i);
      if (r.owner[i] == kNoLane) continue;
      ++owners;
      if (r.target[r.owner[i]] != i || (own[port_of_slot(r.owner[i])] & vl_bit(r.owner[i])) == 0)
        return fmt::format("router {}: output lane {} has an owner that is elsewhere", r.id, i);
    }
    if (owners != active)
      return fmt::format("router {}: {} lanes owned by {} messages", r.id, owners, active);
  }
  return {};
}

template <int kPlanes, class I, class S, class M>
std::vector<Wait> Engine<kPlanes, I, S, M>::waits() const {
  std::vector<Wait> found;
  for (const auto& router : routers_) {
    const State& r = router.state;
    const auto add = [&](unsigned in_lane, unsigned out_lane, bool owns) {
      found.push_back({r.id, static_cast<emu::PortId>(port_of_slot(in_lane)),
                       static_cast<emu::Vl>(vl_of_slot(in_lane)),
                       static_cast<emu::PortId>(port_of_slot(out_lane)),
                       static_cast<emu::Vl>(vl_of_slot(out_lane)), owns});
    };
    for (unsigned o = 0; o < emu::kLaneSlots; ++o) {
      if (vl_of_slot(o) >= emu::kVlCount || r.owner[o] == kNoLane) continue;
      if ((r.out_full[port_of_slot(o)] & vl_bit(o)) != 0 && r.due[r.owner[o]] < now)
        add(r.owner[o], o, true);
      for (unsigned i = r.wait_first[o]; i != kNoLane; i = r.wait_next[i])
        if (r.due[i] < now) add(i, o, false);
    }
  }
  return found;
}

}  // namespace fabric
