#include "fabric/router/general_choose.h"

#include <bit>

#include "fabric/router/choose.h"

namespace fabric::general {

namespace {

bool keeps_to_fixed(const World& world, const hca::Message& message) {
  const auto of_class = static_cast<unsigned>(message.traffic_class);
  // The worms that a message was cut into must not overtake each other; probes do not adapt.
  if (world.preemptive() || world.circuits()) return true;
  return message.kind != emu::PacketKind::data || message.is_answer ||
         ((world.spec.fixed_classes >> of_class) & 1U) != 0;
}

LaneAt lane_of(const World& world, const Choice& choice, const hca::Message& message) {
  return {choice.port, world.routes.lanes.at(choice.set, message.vl_out)};
}

LaneAt choose_by_load(const Router& router, const World& world, std::span<const Choice> choices,
                      const hca::Message& message, const std::array<LaneBits, kPortsMax>& claimed) {
  const LaneAt escape = lane_of(world, choices[0], message);
  const bool adaptive = choices[1].set == LaneSet::adaptive;
  if (adaptive && ((world.routes.lanes.may_adapt >> message.vl_out) & 1) == 0) return escape;
  LaneAt best = escape;
  int least = -1;
  for (const Choice& choice : choices.subspan(adaptive ? 1 : 0)) {
    const LaneAt at = lane_of(world, choice, message);
    const Port& port = router.ports[at.port];
    const bool taken = (((port.owned | claimed[at.port]) >> at.lane) & 1U) != 0;
    if (adaptive && taken) continue;
    const OutputLane& lane = port.out[at.lane];
    if (adaptive && !finds_room(lane.credits[0], static_cast<unsigned>(lane.flits.size()),
                                message.flits, static_cast<unsigned>(world.spec.vc_buf_size)))
      continue;
    constexpr int kTaken = 1 << 16;  // a lane that nobody has goes before all others
    const int load =
        std::popcount(port.owned) + std::popcount(claimed[at.port]) + (taken ? kTaken : 0);
    if (least >= 0 && load >= least) continue;
    least = load;
    best = at;
  }
  return best;
}

}  // namespace

bool may_wait_unrouted(const Router& router, const World& world, const hca::Message& message) {
  return world.routes.table.choices(router.id, message.way).front().set == LaneSet::recovery &&
         ((world.routes.lanes.may_adapt >> message.vl_out) & 1) != 0;
}

// Of the free lanes of all shortest ways, one of the port that fewest messages have a lane of. With
// room as for other adaptive lanes, for another reason: of whatever is blocked some head then
// stands at the front of a lane, unrouted, and can be recovered.
std::optional<LaneAt> choose_free(const Router& router, const World& world,
                                  const hca::Message& message,
                                  std::array<LaneBits, kPortsMax>& claimed) {
  std::optional<LaneAt> best;
  int least = 0;
  for (const Choice& choice : world.routes.table.choices(router.id, message.way).subspan(1)) {
    const Port& port = router.ports[choice.port];
    const LaneBits taken = port.owned | claimed[choice.port];
    const int load = std::popcount(port.owned) + std::popcount(claimed[choice.port]);
    if (best && load >= least) continue;
    for (LaneBits free = world.routes.lanes.adaptive[message.vl_out] & ~taken; free != 0;
         free &= free - 1) {
      const auto l = static_cast<unsigned>(std::countr_zero(free));
      const OutputLane& lane = port.out[l];
      if (!finds_room(lane.credits[0], lane.flits.size(), message.flits,
                      static_cast<unsigned>(world.spec.vc_buf_size)))
        continue;
      best = {choice.port, l};
      least = load;
      break;
    }
  }
  if (best) claimed[best->port] |= lane_bit(best->lane);
  return best;
}

LaneAt choose_output(const Router& router, const World& world, const hca::Message& message,
                     std::array<LaneBits, kPortsMax>& claimed) {
  const std::span<const Choice> choices = world.routes.table.choices(router.id, message.way);
  const LaneAt at =
      choices.size() == 1 || choices[0].set == LaneSet::recovery || keeps_to_fixed(world, message)
          ? lane_of(world, choices[0], message)
          : choose_by_load(router, world, choices, message, claimed);
  claimed[at.port] |= lane_bit(at.lane);
  return at;
}

}  // namespace fabric::general
