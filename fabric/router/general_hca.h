// The wire half of one HCA in the general engine: messages queue lane by lane, the arbiter of the
// router's kind puts one flit a cycle on the link as far as there are credits; the receiving end
// takes what comes and always has room. What hca/wire/group.h is to the fast engine.
#pragma once

#include "fabric/router/general_state.h"
#include "hca/wire/events.h"

namespace fabric::general {

class Hca {
 public:
  void configure(unsigned node, unsigned unit, const World& world);

  // A message joins the queue of its lane; it may leave from cycle message.launch on.
  void ready(World& world, hca::MessageId id, emu::Cycle now);
  void send(World& world, hca::Events& events, emu::Cycle now);
  void receive(World& world, hca::Events& events, emu::Cycle now);
  bool quiet(const World& world, emu::Cycle now) const {
    return waiting_ == 0 && world.links.ports_with(unit_, now) == 0;
  }
  void age(emu::Cycle now);

  PortClock& clock() { return clock_; }
  Arbiter& arbiter() { return arbiter_; }
  int backlog() const { return backlog_; }
  unsigned credits(unsigned lane, unsigned level) const { return lanes_[lane].credits[level]; }
  PortCounters counters() const;

 private:
  struct Queue {  // the next in Message::next
    hca::MessageId first = hca::kNoMessage;
    hca::MessageId last = hca::kNoMessage;
  };
  struct Lane {
    hca::MessageId current = hca::kNoMessage;
    std::uint16_t sent = 0;  // flits of it
    Stamp stamp = 0;         // of its next flit
    // Messages behind it; preemptive: those of a higher level go first.
    std::array<Queue, kLevelsMax> queue;
    std::array<std::uint16_t, kLevelsMax> credits{};
  };
  void bring_to_front(World& world, unsigned lane, emu::Cycle now);
  Able able(const World& world) const;
  Stamp stamp_next(World& world, unsigned lane, emu::Cycle now);
  void tail_left(World& world, hca::Events& events, unsigned lane, emu::Cycle now);
  void tail_arrived(World& world, hca::Events& events, hca::MessageId id, unsigned lane,
                    emu::Cycle now);
  void turn_round(World& world, hca::MessageId id, emu::Cycle now);

  unsigned node_ = 0;
  unsigned unit_ = 0;
  LaneBits waiting_ = 0;  // lanes with a message
  std::array<Lane, kLanesMax> lanes_{};
  PortClock clock_;
  Arbiter arbiter_;
  int backlog_ = 0;
  std::array<LaneCounters, kLanesMax> sent_{};
  std::array<LaneCounters, kLanesMax> received_{};
  std::uint64_t wait_cycles_ = 0;
};

}  // namespace fabric::general
