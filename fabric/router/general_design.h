// What the stages ask of a design for every flit: of the spec when they run, or known to the
// compiler, for designs that whole experiments are made of. Also which queues are of which lanes.
#pragma once

#include <type_traits>

#include "fabric/router/general_state.h"

namespace fabric::general {

class AnyDesign {
 public:
  explicit AnyDesign(const World& world) : world_(world) {}
  bool traditional() const { return world_.traditional(); }
  bool full_crossbar() const { return world_.full_crossbar(); }
  bool circuits() const { return world_.circuits(); }
  bool cut_through() const { return world_.cut_through(); }
  bool preemptive() const { return world_.preemptive(); }
  unsigned levels() const { return world_.levels; }

 private:
  const World& world_;
};

template <RouterKind kRouter, CrossbarKind kCrossbar>
class KnownDesign {
 public:
  explicit KnownDesign(const World&) {}
  static constexpr bool traditional() { return kRouter == RouterKind::traditional; }
  static constexpr bool full_crossbar() { return kCrossbar == CrossbarKind::full; }
  static constexpr bool circuits() { return kRouter == RouterKind::circuit; }
  static constexpr bool cut_through() { return kRouter == RouterKind::cut_through; }
  static constexpr bool preemptive() { return kRouter == RouterKind::preemptive; }
  static constexpr unsigned levels() { return preemptive() ? emu::kClassCount : 1; }
};

// A design with what follows from it.
template <class Design>
struct DesignRules : Design {
  using Design::Design;

  unsigned lane_of(unsigned queue) const {
    return this->levels() == 1 ? queue : queue % emu::kVlCount;
  }
  unsigned level_of(unsigned queue) const {
    return this->levels() == 1 ? 0 : World::level_of(queue);
  }
  static LaneBits lanes_of_level(QueueBits queues, unsigned level) {
    return static_cast<LaneBits>(queues >> World::queue_of(0, level)) & kLanesOfLevel;
  }
  LaneBits lanes_of(QueueBits queues) const {
    if (this->levels() == 1) return static_cast<LaneBits>(queues);
    const QueueBits higher = queues >> World::queue_of(0, 1) | queues >> World::queue_of(0, 2);
    return lanes_of_level(queues | higher, 0);
  }
  // All queues of these lanes.
  QueueBits queues_of(LaneBits lanes) const {
    const QueueBits queues = lanes;
    if (this->levels() == 1) return queues;
    return queues | queues << World::queue_of(0, 1) | queues << World::queue_of(0, 2);
  }
  // Whether least() can be asked: lanes are no more than a row of words has.
  bool has_words(const NextStamps& next) const { return next.by_words() && !this->circuits(); }
  // The lane of the smallest stamp of these queues, no two of one lane; of equal ones the lowest.
  unsigned least(const NextStamps& next, QueueBits queues) const {
    return this->levels() == 1 ? next.template least<1>(queues)
                               : next.template least<kLevelsMax>(queues);
  }
  // Two of these queues are of one lane.
  bool share_lanes(QueueBits queues) const {
    const QueueBits one = queues >> World::queue_of(0, 1);
    const QueueBits two = queues >> World::queue_of(0, 2);
    return lanes_of_level((queues & (one | two)) | (one & two), 0) != 0;
  }
  // Of queues of different lanes that of this lane.
  unsigned queue_at(unsigned lane, QueueBits queues) const {
    if (this->levels() == 1) return lane;
    const QueueBits higher = queues >> World::queue_of(lane, 1);
    const QueueBits highest = queues >> World::queue_of(lane, 2);
    return World::queue_of(lane, static_cast<unsigned>((higher & 1U) + 2 * (highest & 1U)));
  }
  // Which lanes go before all others, or yield to them: by their number, or, where any class may be
  // on any lane, by the level of what they would send.
  Able able_of(const World& world, QueueBits queues) const {
    const LaneBits all = lanes_of(queues);
    if (this->levels() == 1) return {all, all & world.first_lanes, 0, all & world.yielding_lanes};
    return {all, lanes_of_level(queues, this->levels() - 1), 0,
            world.spec.strict_classes ? lanes_of_level(queues, 0) : 0};
  }
  // Room that must be there for this flit to leave: virtual cut-through lets a head go only where
  // the whole packet finds room.
  unsigned room_for(const World& world, const Flit& flit) const {
    const bool packet = this->cut_through() && flit.is(Flit::head);
    return packet ? world.messages[flit.message].flits : 1U;
  }
};

// Calls `step` with the design of this world, as closely as it is known: a std::type_identity.
template <class Step>
void with_design(const World& world, const Step& step) {
  constexpr auto kMultiplexed = CrossbarKind::multiplexed;
  const RouterKind router = world.spec.router;
  if (world.full_crossbar()) {
    if (router == RouterKind::non_preemptive)
      return step(
          std::type_identity<KnownDesign<RouterKind::non_preemptive, CrossbarKind::full>>{});
  } else if (router == RouterKind::preemptive) {
    return step(std::type_identity<KnownDesign<RouterKind::preemptive, kMultiplexed>>{});
  } else if (router == RouterKind::traditional) {
    return step(std::type_identity<KnownDesign<RouterKind::traditional, kMultiplexed>>{});
  } else if (router == RouterKind::non_preemptive) {
    return step(std::type_identity<KnownDesign<RouterKind::non_preemptive, kMultiplexed>>{});
  } else if (router == RouterKind::cut_through) {
    return step(std::type_identity<KnownDesign<RouterKind::cut_through, kMultiplexed>>{});
  }
  step(std::type_identity<AnyDesign>{});
}

}  // namespace fabric::general
