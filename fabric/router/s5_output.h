// Stage 5: the VC multiplexer. Of the output lanes with a flit and a credit one puts a flit on each
// link: lanes of control first, the others in turn; or, in a traditional router, by the order in
// which the flits came through the crossbar. Also the account of credits. In: out_count,
// credits, and those that are `returned` in this cycle. Out: the flits for the boxes of the next
// units, with the names of the messages whose heads (to a router) or tails (to an HCA) leave; stage
// 4 takes them out of out_count together with what it adds.
#pragma once

#include "emu/lane/stamps.h"
#include "fabric/router/s4_cross.h"
#include "fabric/router/state.h"

namespace fabric {

// Round robin for eight ports at once; the turn does not move for lanes of control.
class InTurn {
 public:
  template <emu::Isa kIsa>
  emu::Lanes8 pick(emu::Lanes8 able, emu::Lanes8 control) {
    const emu::Lanes8 ahead = able & turn_;
    const emu::Lanes8 nothing_ahead = emu::zero_words(ahead);
    const emu::Lanes8 in_turn = emu::lowest_lanes(ahead | (able & nothing_ahead));
    const emu::Lanes8 above = ~(in_turn | (in_turn - emu::spread(1)));
    const emu::Lanes8 stays = emu::zero_words(in_turn);
    if (!emu::meet(able, control)) [[likely]] {
      turn_ = (above & ~stays) | (turn_ & stays);
      return in_turn;
    }
    const emu::Lanes8 urgent = emu::lowest_lanes(able & control);
    const emu::Lanes8 not_urgent = emu::zero_words(urgent);
    const emu::Lanes8 moves = not_urgent & ~stays;
    turn_ = (above & moves) | (turn_ & ~moves);
    return urgent | (in_turn & not_urgent);
  }
  // Flits cross to these output lanes, the first of some.
  template <emu::Isa kIsa>
  void came(emu::Lanes8 /*flits*/, emu::Lanes8 /*first*/, emu::Cycle) {}
  void age(std::uint64_t) {}

 private:
  emu::Lanes8 turn_{};  // lanes above the last one served
};

// A flit is stamped with the cycle in which it crossed; the smallest stamp goes first.
template <int kPlanes>
class InOrderOfComing {
 public:
  template <emu::Isa kIsa>
  emu::Lanes8 pick(emu::Lanes8 able, emu::Lanes8 /*control*/) {
    const emu::Lanes8 chosen = emu::smallest_lanes<kIsa>(bids_, able);
    stamps_.template leave<kIsa>(bids_, chosen);
    return chosen;
  }
  template <emu::Isa kIsa>
  void came(emu::Lanes8 flits, emu::Lanes8 first, emu::Cycle now) {
    stamps_.template arrive<kIsa>(bids_, flits, first, emu::stamp_now(now));
  }
  void age(std::uint64_t moved) { stamps_.age(bids_, moved); }

 private:
  emu::InputStamps<kPlanes> stamps_;  // every Vtick is 0
  emu::BidRows bids_;                 // without a way
};

template <class State>
void heads_leave(const State& r, emu::Lanes8 heads, emu::Box* next_row, const emu::Outlet& outlet) {
  for (unsigned ports = emu::ports_of(heads); ports != 0; ports &= ports - 1) {
    const unsigned port = emu::first_bit(ports);
    const unsigned out_lane = lane_slot(port, emu::first_bit(heads[port]));
    emu::emit_name(next_row, outlet, port, r.out_messages.front(out_lane));
  }
}

template <class State>
void tails_leave(State& r, emu::Lanes8 tails, const hca::MessageTable& messages, emu::Box* next_row,
                 const emu::Outlet& outlet) {
  r.at_head |= tails;
  for (unsigned ports = emu::ports_of(tails); ports != 0; ports &= ports - 1) {
    const unsigned port = emu::first_bit(ports);
    const unsigned out_lane = lane_slot(port, emu::first_bit(tails[port]));
    if (outlet.to_hca[port] != 0)
      emu::emit_name(next_row, outlet, port, r.out_messages.front(out_lane));
    r.out_messages.pop(out_lane);
    // Whether there is a next one cannot be predicted; if not, the lane's next owner sets it again,
    // and no message is asked, for another thread may be turning it round.
    static constexpr std::uint16_t kNoFlits = 0;
    const bool more = r.out_messages.count[out_lane] != 0;
    const std::uint16_t& flits = messages[r.out_messages.front(out_lane)].flits;
    r.leaving.set(out_lane, *(more ? &flits : &kNoFlits));
  }
}

// What leaves, and what is to be told of it.
struct Output {
  emu::Lanes8 flits{};
  emu::Lanes8 heads{};
  emu::Lanes8 ending{};  // perhaps tails
};

template <emu::Isa kIsa, Site kSite, class State, class Multiplexer>
Output stage5_output(State& r, Multiplexer& multiplexer, emu::Lanes8 returned, emu::Lanes8 control,
                     const emu::Outlet& outlet, const Surroundings& world) {
  const emu::Lanes8 occupied = r.out_occupied;
  emu::Lanes8 able = occupied;
  const bool metered = kSite == Site::among_others || world.metered;
  if (metered) {
    able &= r.credits.nonzero() | returned;
    r.recent_wait -= emu::zero_words(able) & ~emu::zero_words(occupied);
  }
  const emu::Lanes8 sent = multiplexer.template pick<kIsa>(able, control);
  if (metered) r.credits.change(returned, sent);
  if (!emu::any(sent)) return {};
  const emu::Lanes8 unfilled = sent & r.out_full;
  if (emu::any(unfilled)) {
    r.out_full ^= unfilled;
    set_ready(r, unfilled, true);
  }
  if constexpr (kSite == Site::alone) return {.flits = sent};
  const emu::Lanes8 heads = sent & r.at_head & ~outlet.to_hca;
  r.at_head &= ~sent;
  return {sent, heads, r.leaving.take(sent)};
}

}  // namespace fabric
