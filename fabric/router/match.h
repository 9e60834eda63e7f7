// The separable allocator of stage 4. Rounds: every input port without a grant proposes the most
// urgent of its lanes that lead to an output port without a grant; of the proposals for one output
// the most urgent wins, ties by this cycle's ranks. A round ends with every output for which
// somebody has proposed taken. The loops over ports exist for each instruction set (match_wide.h);
// results are the same.
#pragma once

#include "emu/lane/bid.h"
#include "emu/lane/stamp.h"
#include "fabric/router/rank.h"

namespace fabric {

// What crosses: at most one flit an input and one an output port.
struct Crossing {
  emu::Lanes8 in;   // [input port] the lane that gives a flit
  emu::Lanes8 out;  // [output port] the lane that gets one
};

// What the rounds have granted so far, and what the last one did.
struct Granted {
  emu::Bids8 bids;           // [input port], where `ports` has its bit
  unsigned ports = 0;        // inputs with a grant
  unsigned taken = 0;        // outputs for which somebody has proposed
  emu::Lanes8 last{};        // the input lanes that the last round granted
  bool nobody_lost = false;  // in the last round: no other could gain anything
};

// Input ports, a bit each, whose bid wins the output port that it names. `ports`: those that bid.
inline unsigned winners(const emu::Bids8& bids, unsigned ports, emu::Cycle now) {
  const auto& ranks = kPortRanks.of[now % kPortRanks.of.size()];
  std::array<unsigned, emu::kPortsMax> best;
  best.fill(~0U);
  for (unsigned rest = ports; rest != 0; rest &= rest - 1) {
    const unsigned port = emu::first_bit(rest);
    const unsigned out = emu::out_port_of_bid(bids.of[port]);
    const unsigned urgency = bids.of[port] >> emu::kStampShift;
    best[out] = std::min(best[out], urgency * emu::kPortsMax + ranks[port]);
  }
  unsigned won = 0;
  for (const unsigned claim : best) {
    if (claim == ~0U) continue;
    for (unsigned port = 0; port < emu::kPortsMax; ++port)
      won |= static_cast<unsigned>(ranks[port] == claim % emu::kPortsMax) << port;
  }
  return won;
}

// One round of what a scheduler has picked.
template <emu::Isa kIsa>
inline void grant_picks(Granted& granted, const emu::BidRows& rows, const emu::Picks& picks,
                        emu::Cycle now) {
  const unsigned ports = emu::ports_of(picks.lanes);
  emu::Bids8 bids;
  for (unsigned rest = ports; rest != 0; rest &= rest - 1) {
    const unsigned port = emu::first_bit(rest);
    const unsigned slot = emu::lane_slot(port, emu::first_bit(picks.lanes[port]));
    bids.of[port] = (rows.of[slot] & 0xffffU) | static_cast<emu::Bid>(picks.keys[port])
                                                    << emu::kStampShift;
    granted.taken |= 1U << emu::out_port_of_bid(bids.of[port]);
  }
  const unsigned won = winners(bids, ports, now);
  granted.last = emu::kNoLanes8;
  for (unsigned rest = won; rest != 0; rest &= rest - 1) {
    const unsigned port = emu::first_bit(rest);
    granted.bids.of[port] = bids.of[port];
    granted.last[port] = picks.lanes[port];
  }
  granted.ports |= won;
  granted.nobody_lost = won == ports;
}

// Who yields and who goes first, if anybody.
struct Precedence {
  emu::Lanes8 control{};  // lanes that go strictly before all others
  emu::Lanes8 yields{};   // lanes that go only where no other can
};

// The most urgent of these lanes of one port.
inline emu::Bid bid_of_lanes(const emu::BidRows& rows, unsigned port, unsigned lanes,
                             unsigned control) {
  const unsigned urgent = lanes & control;
  return emu::smallest_bid(rows, port, urgent != 0 ? urgent & (0U - urgent) : lanes);
}

// The bid of one port for an output port that is not in `taken`.
inline emu::Bid bid_of(const emu::BidRows& rows, unsigned port, unsigned lanes, unsigned taken,
                       const Precedence& precedence) {
  unsigned open = 0;
  for (unsigned rest = lanes; rest != 0; rest &= rest - 1) {
    const unsigned slot = emu::lane_slot(port, emu::first_bit(rest));
    if ((rows.of[slot] & taken) == 0) open |= rest & (0U - rest);
  }
  const unsigned yields = precedence.yields[port];
  if ((open & ~yields) != 0) open &= ~yields;
  const unsigned control = precedence.control[port];
  const emu::Bid bid = bid_of_lanes(rows, port, open, control);
  if (bid == emu::kNoBid) return bid;
  const bool urgent = (open & control) != 0;
  if (yields == 0) return urgent ? bid & 0xffffU : bid;
  std::uint32_t stamp = urgent ? 0 : bid >> emu::kStampShift;
  stamp = (open & yields) != 0 ? emu::kYieldingKey : std::min(stamp, emu::kYieldingKey - 1U);
  return (bid & 0xffffU) | stamp << emu::kStampShift;
}

// What the grants are as lanes.
template <emu::Isa kIsa>
inline Crossing crossing_of(const emu::Bids8& bids, unsigned ports) {
  Crossing crossing = {emu::kNoLanes8, emu::kNoLanes8};
  for (unsigned rest = ports; rest != 0; rest &= rest - 1) {
    const unsigned port = emu::first_bit(rest);
    crossing.in |= emu::kOneLane.of[emu::lane_slot(port, emu::lane_of_bid(bids.of[port]))];
    crossing.out |= emu::kOneLane.of[emu::out_slot_of_bid(bids.of[port])];
  }
  return crossing;
}

inline Crossing one_crosses(unsigned port, emu::Bid bid) {
  return {emu::kOneLane.of[emu::lane_slot(port, emu::lane_of_bid(bid))],
          emu::kOneLane.of[emu::out_slot_of_bid(bid)]};
}

// All rounds for schedulers whose urgency is in the bids.
inline Crossing allocate_in_order(const emu::BidRows& rows, emu::Lanes8 eligible, int rounds,
                                  const Precedence& precedence, emu::Cycle now) {
  emu::Bids8 granted;
  unsigned won = 0;
  unsigned taken = 0;
  for (int round = 0; round < rounds; ++round) {
    emu::Bids8 bids;
    unsigned ports = 0;
    unsigned wanted = 0;
    for (unsigned rest = emu::ports_of(eligible) & ~won; rest != 0; rest &= rest - 1) {
      const unsigned port = emu::first_bit(rest);
      bids.of[port] = bid_of(rows, port, eligible[port], taken, precedence);
      if (bids.of[port] == emu::kNoBid) continue;
      ports |= 1U << port;
      wanted |= bids.of[port] & emu::kBidPorts;
    }
    if (ports == 0) break;
    const unsigned winning = winners(bids, ports, now);
    for (unsigned rest = winning; rest != 0; rest &= rest - 1)
      granted.of[emu::first_bit(rest)] = bids.of[emu::first_bit(rest)];
    won |= winning;
    taken |= wanted;
  }
  return crossing_of<emu::Isa::base>(granted, won);
}

template <emu::Isa>
struct Allocator {
  template <class Between>
  static Crossing run(const emu::BidRows& rows, emu::Lanes8 eligible, int rounds, emu::Cycle now,
                      const Between& between) {
    between();
    return allocate_in_order(rows, eligible, rounds, {}, now);
  }
};

}  // namespace fabric

#include "fabric/router/match_wide.h"

namespace fabric {

// `between` is called once, behind the first round. A processor that looks ahead holds only so many
// steps that wait for others: with both rounds before it, a second chain of steps that wait for
// each other would not be reached before the rounds are over.
template <emu::Isa kIsa, class Between>
inline Crossing allocate_bids(const emu::BidRows& rows, emu::Lanes8 eligible, int rounds,
                              emu::Cycle now, const Between& between) {
  return Allocator<kIsa>::run(rows, eligible, rounds, now, between);
}

}  // namespace fabric
