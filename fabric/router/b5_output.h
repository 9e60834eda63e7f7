// Stage 5: the VC multiplexer. Of the output lanes with a flit and a credit one puts a flit on each
// link: lanes of control first, the others in turn. Also the account of credits. In: the credits of
// this cycle's row. Out: the flits in the row of their arrival, with the names of the messages
// whose heads (to a router) or tails (to an HCA) leave.
#pragma once

#include <bit>

#include "fabric/router/b3_arbitrate.h"
#include "fabric/router/block.h"

namespace fabric::blocks {

// The lane of port `port` in words of at most one lane each.
inline unsigned only_lane(const emu::LaneWords& words, unsigned port) {
  return emu::block_lane(port, emu::first_of(words[port]));
}

// An output lane got its first free flit, or its last: its owner, if any, may go on, or not.
template <class Block>
void set_open(Block& b, unsigned out_lane, bool open) {
  const BlockLane in_lane = b.owner[out_lane];
  if (in_lane == kNoBlockLane) return;
  emu::LaneMask& word = b.open[emu::port_of_lane(in_lane)];
  emu::drop_lane(word, emu::vl_of_lane(in_lane));
  if (open) emu::add_lane(word, emu::vl_of_lane(in_lane));
}

template <class Block>
[[gnu::noinline]] void tail_leaves(Block& b, unsigned port, unsigned out_lane,
                                   const BlockWorld& world, emu::LinkBlock* there) {
  if ((b.to_hca >> port & 1U) != 0)
    emu::put_name(there, b.peer[port], b.out_messages[out_lane].front());
  b.out_messages[out_lane].pop(b.out_others[out_lane]);
  if (b.out_messages[out_lane].count != 0) begin_leaving(b, out_lane, world);
}

template <emu::Isa kIsa, class Block>
void stage5_output(Block& b, const BlockWorld& world, emu::LaneWords& returned, emu::Moved& moved,
                   emu::LinkBlock* there) {
  const emu::Sent sent = emu::send_in_turn<kIsa>(b.out, returned, moved, world.control, b.ports);
  b.inside -= static_cast<unsigned>(std::popcount(sent.ports));
  std::uint64_t tails = 0;
  const emu::OnlyLanes<kIsa> lanes(moved.sent, b.ports);
  // HCAs that give no credits look at tails alone, but loops end in branches that are mispredicted.
  for (std::uint64_t bits = sent.ports; bits != 0; bits &= bits - 1) {
    const unsigned port = emu::first_of(bits);
    emu::put_flit(there, b.peer[port], moved.sent[port]);
    tails |= std::uint64_t{--b.leaving[lanes[port]] == 0} << port;
  }
  for (std::uint64_t bits = sent.unfilled; bits != 0; bits &= bits - 1)
    set_open(b, only_lane(moved.sent, emu::first_of(bits)), true);
  for (std::uint64_t bits = sent.heads & ~b.to_hca; bits != 0; bits &= bits - 1) {
    const unsigned port = emu::first_of(bits);
    emu::put_name(there, b.peer[port], b.out_messages[only_lane(moved.sent, port)].front());
  }
  for (std::uint64_t bits = tails; bits != 0; bits &= bits - 1) {
    const unsigned port = emu::first_of(bits);
    tail_leaves(b, port, only_lane(moved.sent, port), world, there);
  }
}

}  // namespace fabric::blocks
