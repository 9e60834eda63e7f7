// Where a routed head goes: of the choices of its destination the fixed one, or by load. Out: an
// output lane. Called by stage 2 (s2_route.h); what a choice depends on is written in README.md.
#pragma once

#include <bit>
#include <span>

#include "emu/lane/planes.h"
#include "fabric/route/routing.h"
#include "hca/wire/message.h"

namespace fabric {

// An input or output lane of a router: port and lane in one number (emu::lane_slot).
using LaneIndex = std::uint8_t;
inline constexpr LaneIndex kNoLane = 0xff;
static_assert(emu::kLaneSlots < kNoLane);
// A byte that the compiler puts on its stack as such and reads back as a word waits long for that
// store (g++ 12 does so): it becomes a word at once.
inline unsigned as_word(LaneIndex lane) {
  unsigned word = lane;
  asm("" : "+r"(word));
  return word;
}

// What one router knows of the routes. Filled in before the first cycle.
struct Ways {
  const Routes* routes = nullptr;
  emu::RouterId router = 0;
  unsigned fixed_classes = 0;  // NetworkSpec::fixed_classes
  unsigned buffer = 0;         // flits of a lane

  std::span<const Choice> to(Way way) const { return routes->table.choices(router, way); }
  // What admission booked, and what books, must not stray.
  bool keeps_to_fixed(const hca::Message& message) const {
    return message.kind != emu::PacketKind::data || message.is_answer ||
           ((fixed_classes >> static_cast<unsigned>(message.traffic_class)) & 1U) != 0;
  }
  // Of the fixed way: the lane on its link for each lane of a message.
  const std::array<emu::Vl, emu::kVlCount>& lanes_to(Way way) const {
    return routes->lanes.lane[static_cast<std::size_t>(to(way).front().set)];
  }
  unsigned out_lane(const Choice& choice, const hca::Message& message) const {
    return emu::lane_slot(choice.port, routes->lanes.at(choice.set, message.vl_out));
  }
};

inline unsigned lanes_set(emu::Lanes8 lanes) {
  using Wide = std::uint64_t __attribute__((vector_size(16), may_alias));
  const auto wide = reinterpret_cast<Wide>(lanes);
  return static_cast<unsigned>(std::popcount(wide[0]) + std::popcount(wide[1]));
}

// Adaptive lanes are for messages that need not wait in them: the next buffer takes the whole
// message, or one longer than a buffer finds it empty. Waiting there would close rings, in which
// with recovery nobody could be helped (README.md).
inline bool finds_room(unsigned credits, unsigned held, unsigned flits, unsigned buffer) {
  return credits >= held + (flits < buffer ? flits : buffer);
}

// `claimed`: output lanes that heads of this cycle have chosen before.
template <class State>
unsigned choose_by_load(const State& r, std::span<const Choice> choices,
                        const hca::Message& message, const emu::Lanes8& claimed) {
  const bool adaptive = choices[1].set == LaneSet::adaptive;
  if (adaptive && ((r.ways.routes->lanes.may_adapt >> message.vl_out) & 1) == 0)
    return r.ways.out_lane(choices[0], message);
  unsigned best = r.ways.out_lane(choices[0], message);
  unsigned least = ~0U;
  for (const Choice& choice : choices.subspan(adaptive ? 1 : 0)) {
    const unsigned lane = r.ways.out_lane(choice, message);
    const bool taken =
        r.owner[lane] != kNoLane || ((claimed[choice.port] >> emu::vl_of_slot(lane)) & 1U) != 0;
    if (adaptive && taken) continue;
    const unsigned vl = emu::vl_of_slot(lane);
    if (adaptive && !finds_room(r.credits.get(choice.port, vl), r.out_count.get(choice.port, vl),
                                message.flits, r.ways.buffer))
      continue;
    // Messages on their way to the port; a lane that nobody has goes before all others.
    const unsigned load = lanes_set(r.from[choice.port]) +
                          static_cast<unsigned>(std::popcount(claimed[choice.port])) +
                          (taken ? 1U << 16 : 0U);
    if (load >= least) continue;
    least = load;
    best = lane;
  }
  return best;
}

template <class State>
unsigned choose_output(const State& r, const hca::Message& message, emu::Lanes8& claimed) {
  const std::span<const Choice> choices = r.ways.to(message.way);
  const unsigned lane = choices.size() == 1 || r.ways.keeps_to_fixed(message)
                            ? r.ways.out_lane(choices[0], message)
                            : choose_by_load(r, choices, message, claimed);
  claimed[emu::port_of_slot(lane)] |= static_cast<std::uint16_t>(1U << emu::vl_of_slot(lane));
  return lane;
}

}  // namespace fabric
