// Stage 5: the VC multiplexer. Of the output lanes with a flit and a credit one puts a flit on each
// link: lanes of control first, the others in turn. Also the account of credits. In: out_count,
// credits, and those that are `returned` in this cycle. Out: the flits for the boxes of the next
// units, with the names of the messages whose heads leave; stage 4 takes them out of out_count
// together with what it adds.
#pragma once

#include "fabric/router/s4_cross.h"
#include "fabric/router/state.h"

namespace fabric {

// Round robin for eight ports at once; the turn does not move for lanes of control.
template <class State>
emu::Lanes8 multiplex(State& r, emu::Lanes8 able, emu::Lanes8 control) {
  const emu::Lanes8 ahead = able & r.turn;
  const emu::Lanes8 nothing_ahead = emu::zero_words(ahead);
  const emu::Lanes8 in_turn = emu::lowest_lanes(ahead | (able & nothing_ahead));
  const emu::Lanes8 urgent = emu::lowest_lanes(able & control);
  const emu::Lanes8 not_urgent = emu::zero_words(urgent);
  const emu::Lanes8 moves = not_urgent & ~emu::zero_words(in_turn);
  const emu::Lanes8 above = ~(in_turn | (in_turn - emu::spread(1)));
  r.turn = (above & moves) | (r.turn & ~moves);
  return urgent | (in_turn & not_urgent);
}

template <class State>
void heads_leave(State& r, emu::Lanes8 leaving, const hca::MessageTable& messages,
                 emu::Box* next_row, const emu::Outlet& outlet) {
  for (unsigned ports = emu::ports_of(leaving); ports != 0; ports &= ports - 1) {
    const unsigned port = emu::first_bit(ports);
    const unsigned vl = emu::first_bit(leaving[port]);
    const unsigned out_lane = lane_slot(port, vl);
    const hca::MessageId id = r.out_messages.front(out_lane);
    emu::emit_head(next_row, outlet, port, id);
    r.out_messages.pop(out_lane);
    if (r.out_messages.count[out_lane] == 0) {
      r.head_waits[port] &= static_cast<std::uint16_t>(~leaving[port]);
    } else {
      // The rest of this message stands before the next head; all of it has crossed.
      r.head_dist.set(port, vl, messages[id].flits - 1U);
    }
  }
}

template <class State>
emu::Lanes8 stage5_output(State& r, emu::Lanes8 returned, emu::Lanes8 control,
                          const hca::MessageTable& messages, emu::Box* next_row,
                          const emu::Outlet& outlet) {
  const emu::Lanes8 occupied = r.out_count.nonzero();
  const emu::Lanes8 able = occupied & (r.credits.nonzero() | returned);
  r.recent_wait -= emu::zero_words(able) & ~emu::zero_words(occupied);
  const emu::Lanes8 sent = multiplex(r, able, control);
  r.credits.change(returned, sent);
  if (!emu::any(sent)) return sent;
  const emu::Lanes8 unfilled = sent & r.out_full;
  if (emu::any(unfilled)) {
    r.out_full ^= unfilled;
    set_ready(r, unfilled, true);
  }
  const emu::Lanes8 with_head = sent & r.head_waits;
  const emu::Lanes8 behind = r.head_dist.nonzero();
  const emu::Lanes8 leaving = with_head & ~behind;
  r.head_dist.take_one(with_head & behind);
  if (emu::any(leaving)) heads_leave(r, leaving, messages, next_row, outlet);
  return sent;
}

}  // namespace fabric
