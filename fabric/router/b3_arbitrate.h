// Stages 2 and 3, where only heads are. Stage 2: the head at the front of an input lane learns its
// output lane; probes and releases ask admission. Stage 3: it takes that lane, which its message
// holds until the tail has crossed; others wait in line, first come first served. In: `routing`,
// `arbitrating`, and tails that crossed in this cycle. Out: owners, `open`, and the message's place
// in the output lane.
#pragma once

#include <algorithm>
#include <bit>
#include <span>

#include "fabric/router/ask_admission.h"
#include "fabric/router/block.h"
#include "fabric/router/choose.h"

namespace fabric::blocks {

// The message is now first in its input lane and has to be routed.
template <class Block>
void bring_to_front(Block& b, unsigned in_lane, const BlockWorld& world) {
  InputMessages& in = b.in_messages[in_lane];
  const hca::Message& message = world.messages[in.front()];
  in.flits = message.flits;
  b.left[in_lane] = message.flits;
  b.routing.push({static_cast<BlockLane>(in_lane), in.front(), message.way});
}

// The front message of an output lane begins to leave.
template <class Block>
void begin_leaving(Block& b, unsigned out_lane, const BlockWorld& world) {
  b.leaving[out_lane] = world.messages[b.out_messages[out_lane].front()].flits;
  emu::add_lane(b.out.at_head[emu::port_of_lane(out_lane)], emu::vl_of_lane(out_lane));
}

template <class Block>
void take_output_lane(Block& b, unsigned in_lane, const BlockWorld& world) {
  const unsigned out_lane = b.bids.out_lane(in_lane);
  const unsigned out_port = emu::port_of_lane(out_lane);
  const unsigned out_vl = emu::vl_of_lane(out_lane);
  b.owner[out_lane] = static_cast<BlockLane>(in_lane);
  b.way[in_lane] = static_cast<std::uint8_t>(1U << (out_port - b.first[out_port]));
  emu::add_lane(b.owned[out_port], out_vl);
  if ((b.out.full[out_port] >> out_vl & 1U) == 0)
    emu::add_lane(b.open[emu::port_of_lane(in_lane)], emu::vl_of_lane(in_lane));
  // The whole of the lane's earlier messages has crossed.
  b.out_messages[out_lane].push(b.in_messages[in_lane].front(), b.out_others[out_lane]);
  if (b.out_messages[out_lane].count == 1) begin_leaving(b, out_lane, world);
  ++b.activity[b.first[out_port]].heads;
}

// The tail of the front message of `in_lane` has crossed: its output lane goes to the first in
// line, the next message of the input lane comes to the front.
template <class Block>
void release_output_lane(Block& b, unsigned in_lane, const BlockWorld& world) {
  const unsigned out_lane = b.bids.out_lane(in_lane);
  InputMessages& in = b.in_messages[in_lane];
  OutputMessages& out = b.out_messages[out_lane];
  in.traffic.flits += in.flits;
  ++in.traffic.packets;
  out.traffic.flits += in.flits;
  ++out.traffic.packets;
  b.tails_crossed[emu::port_of_lane(out_lane)] += in.flits;
  emu::drop_lane(b.open[emu::port_of_lane(in_lane)], emu::vl_of_lane(in_lane));
  emu::drop_lane(b.owned[emu::port_of_lane(out_lane)], emu::vl_of_lane(out_lane));
  b.owner[out_lane] = kNoBlockLane;
  in.pop(b.in_others[in_lane]);
  if (in.count != 0) bring_to_front(b, in_lane, world);
  const BlockLane waiter = out.wait_first;
  if (waiter == kNoBlockLane) return;
  out.wait_first = b.in_messages[waiter].wait_next;
  take_output_lane(b, waiter, world);
}

template <class Block>
[[gnu::noinline]] void stage3_arbitrate(Block& b, const BlockWorld& world) {
  for (const BlockLane in_lane : b.arbitrating) {
    const unsigned out_lane = b.bids.out_lane(in_lane);
    if (b.owner[out_lane] == kNoBlockLane) {
      take_output_lane(b, in_lane, world);
      continue;
    }
    OutputMessages& out = b.out_messages[out_lane];
    b.in_messages[in_lane].wait_next = kNoBlockLane;
    (out.wait_first == kNoBlockLane ? out.wait_first : b.in_messages[out.wait_last].wait_next) =
        in_lane;
    out.wait_last = in_lane;
  }
  b.arbitrating.count = 0;
}

// What admission booked, and what books, must not stray.
inline bool keeps_to_fixed(const hca::Message& message, const BlockWorld& world) {
  return message.kind != emu::PacketKind::data || message.is_answer ||
         ((world.fixed_classes >> static_cast<unsigned>(message.traffic_class)) & 1U) != 0;
}

// The output lane of a choice for a router whose first port is `first`.
template <class Block>
unsigned lane_of_choice(const Block& b, unsigned first, const Choice& choice,
                        const hca::Message& message, const BlockWorld& world) {
  return emu::block_lane(b.place[first][choice.port],
                         world.routes.lanes.at(choice.set, message.vl_out));
}

// Messages on their way to the port of a lane; a lane that nobody has goes before all others.
// `claimed`: output lanes that heads of this cycle have chosen before.
template <class Block>
unsigned load_of(const Block& b, unsigned lane, const emu::LaneWords& claimed) {
  const unsigned port = emu::port_of_lane(lane);
  const unsigned taken = (b.owned[port] | claimed[port]) >> emu::vl_of_lane(lane) & 1U;
  return static_cast<unsigned>(std::popcount(b.owned[port]) + std::popcount(claimed[port])) |
         taken << 16;
}
template <class Block>
unsigned choose_by_load(const Block& b, unsigned first, std::span<const Choice> choices,
                        const hca::Message& message, const BlockWorld& world,
                        const emu::LaneWords& claimed) {
  // Which is least cannot be predicted: of equal loads the first choice, all in one number.
  std::uint64_t least = ~std::uint64_t{0};
  unsigned n = 0;
  for (const Choice& choice : choices) {
    const unsigned lane = lane_of_choice(b, first, choice, message, world);
    least = std::min(least, std::uint64_t{load_of(b, lane, claimed)} << 32 | n++ << 16 | lane);
  }
  return least & 0xffff;
}
// The first choice is the escape.
template <class Block>
unsigned choose_adaptively(const Block& b, unsigned first, std::span<const Choice> choices,
                           const hca::Message& message, const BlockWorld& world,
                           const emu::LaneWords& claimed) {
  unsigned best = lane_of_choice(b, first, choices[0], message, world);
  if (((world.routes.lanes.may_adapt >> message.vl_out) & 1) == 0) return best;
  unsigned least = 1U << 16;  // of a lane that somebody has
  for (const Choice& choice : choices.subspan(1)) {
    const unsigned lane = lane_of_choice(b, first, choice, message, world);
    const unsigned load = load_of(b, lane, claimed);
    if (load >= least) continue;
    const unsigned port = emu::port_of_lane(lane);
    const unsigned vl = emu::vl_of_lane(lane);
    if (!finds_room(b.out.credits.get(port, vl), b.out.held.get(port, vl), message.flits,
                    world.buffer))
      continue;
    least = load;
    best = lane;
  }
  return best;
}
template <class Block>
unsigned choose_lane(const Block& b, unsigned first, std::span<const Choice> choices,
                     const hca::Message& message, const BlockWorld& world,
                     const emu::LaneWords& claimed) {
  if (choices.size() == 1 || keeps_to_fixed(message, world))
    return lane_of_choice(b, first, choices[0], message, world);
  return choices[1].set == LaneSet::adaptive
             ? choose_adaptively(b, first, choices, message, world, claimed)
             : choose_by_load(b, first, choices, message, world, claimed);
}

template <class Block>
[[gnu::noinline]] void stage2_route(Block& b, const BlockWorld& world, emu::Cycle now) {
  // The lower input port, then lane, is first.
  std::sort(b.routing.entry.data(), b.routing.entry.data() + b.routing.count,
            [](const UnroutedHead& x, const UnroutedHead& y) { return x.lane < y.lane; });
  emu::LaneWords claimed{};
  for (const auto& [in_lane, id, way] : b.routing) {
    hca::Message& message = world.messages[id];
    const unsigned in_port = emu::port_of_lane(in_lane);
    const unsigned first = b.first[in_port];
    const emu::RouterId router = b.router[in_port];
    const std::span<const Choice> choices = world.routes.table.choices(router, way);
    const unsigned out_lane = choose_lane(b, first, choices, message, world, claimed);
    const unsigned out_port = emu::port_of_lane(out_lane);
    emu::add_lane(claimed[out_port], emu::vl_of_lane(out_lane));
    b.bids.set_out_lane(in_lane, out_lane);
    b.arbitrating.push(in_lane);
    if (asks_admission(world.hook, message))
      ask_admission(*world.hook, message,
                    {router, b.number[in_port], b.number[out_port], now,
                     &world.routes.lanes.lane[static_cast<std::size_t>(choices[0].set)]});
  }
  b.routing.count = 0;
}

}  // namespace fabric::blocks
