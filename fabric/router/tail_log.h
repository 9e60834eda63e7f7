// When tails leave a router all of whose links lead to HCAs: found out afterwards, for many cycles
// at once. To ask in every cycle costs a counter of each lane and a branch that nobody can predict.
// A tail that has crossed into its output lane leaves with the last of the flits that are there
// then; every cycle writes down which lanes send one. Written by fabric/router's stages 4 and 5;
// the engine looks.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <vector>

#include "emu/base/units.h"
#include "emu/lane/planes.h"
#include "fabric/router/choose.h"
#include "hca/wire/message.h"

namespace fabric {

class TailLog {
 public:
  // Cycles from one look() to the next, at most; what a look leaves out counts.
  static constexpr emu::Cycle kCyclesMax = 128;

  explicit TailLog(std::size_t messages) {
    waiting_.reserve(messages);
    left_.reserve(messages);
    probes_.reserve(messages);
  }
  // Of every cycle in which tails wait.
  void sent(emu::Cycle now, emu::Lanes8 flits) {
    std::memcpy(&sent_[now % kCycles], &flits, sizeof flits);
  }
  // A tail crossed in cycle `now`; its output lane holds `flits` flits, it is the last.
  void crossed(emu::Cycle now, hca::MessageId id, unsigned out_lane, unsigned flits, bool turns) {
    (turns ? probes_ : waiting_).push_back({now + 1, id, flits, out_lane, kNobody});
  }

  // Tails that turn round where they arrive are told of in time. They are few.
  bool has_probes() const { return !probes_.empty(); }
  // If there are any, once a cycle: what is sent in it. `arrives`(output lane, message) for each of
  // them that left `delay` cycles before.
  template <class Arrives>
  void follow_probes(emu::Cycle now, emu::Lanes8 flits, emu::Cycle delay, const Arrives& arrives) {
    std::erase_if(probes_, [&](Tail& probe) {
      if (probe.flits != 0 && probe.from <= now) {
        probe.from = now;
        probe.flits -= sends(flits, probe.out_lane);
      }
      const bool there = probe.flits == 0 && probe.from + delay == now;
      if (there) arrives(probe.out_lane, probe.id);
      return there;
    });
  }

  // `leaves`(cycle, output lane, message) for each other tail that left before cycle `until` and of
  // which this has not been said; in the order of cycles, of the same cycle the lower port first.
  template <class Leaves>
  void look(emu::Cycle until, const Leaves& leaves) {
    if (waiting_.empty()) return;
    const emu::Cycle first = waiting_.front().from;  // they are in the order of these
    find(until);
    // Cycles with tails, in the order of time: the ring's words from that of the first one on.
    for (emu::Cycle cycle = first - first % kBits; cycle < until; cycle += kBits) {
      std::uint64_t& days = busy_[cycle % kCycles / kBits];
      for (; days != 0; days &= days - 1) {
        const emu::Cycle day = cycle + static_cast<unsigned>(std::countr_zero(days));
        for (unsigned n = first_[day % kCycles]; n != kNobody; n = left_[n].next)
          leaves(day, left_[n].out_lane, left_[n].id);
      }
    }
    left_.clear();
  }

 private:
  static constexpr emu::Cycle kCycles = 256;
  static constexpr unsigned kBits = 64;
  static_assert(kCyclesMax + 2 * kBits <= kCycles, "no word holds the first and the last cycle");
  static constexpr std::uint32_t kNobody = ~std::uint32_t{0};

  struct Tail {
    emu::Cycle from;  // the first cycle that counts, or that in which it left
    hca::MessageId id;
    std::uint32_t flits;  // that its lane sends from then on until it has left
    std::uint32_t out_lane;
    std::uint32_t next;  // that left in the same cycle
  };

  template <class Words>
  static unsigned sends(const Words& flits, unsigned out_lane) {
    return unsigned{flits[emu::port_of_slot(out_lane)]} >> emu::vl_of_slot(out_lane) & 1U;
  }
  void find(emu::Cycle until) {
    std::size_t kept = 0;
    for (Tail tail : waiting_) {
      emu::Cycle cycle = tail.from;
      for (; cycle < until; ++cycle) {
        tail.flits -= sends(sent_[cycle % kCycles], tail.out_lane);
        if (tail.flits == 0) break;
      }
      tail.from = cycle;
      if (tail.flits == 0) {
        leaves_in(cycle, tail);
      } else {
        waiting_[kept++] = tail;
      }
    }
    waiting_.resize(kept);
  }
  void leaves_in(emu::Cycle cycle, Tail tail) {
    std::uint64_t& days = busy_[cycle % kCycles / kBits];
    const std::uint64_t day = std::uint64_t{1} << cycle % kBits;
    std::uint32_t* link = &first_[cycle % kCycles];
    if ((days & day) == 0) *link = kNobody;
    days |= day;
    while (*link != kNobody &&
           emu::port_of_slot(left_[*link].out_lane) < emu::port_of_slot(tail.out_lane))
      link = &left_[*link].next;
    tail.next = *link;
    *link = static_cast<std::uint32_t>(left_.size());
    left_.push_back(tail);
  }

  std::vector<Tail> waiting_;
  std::vector<Tail> left_;
  std::vector<Tail> probes_;
  alignas(64) std::array<std::array<std::uint16_t, emu::kPortsMax>, kCycles> sent_{};  // lanes
  std::array<std::uint64_t, kCycles / kBits> busy_{};  // cycles in which tails left
  std::array<std::uint32_t, kCycles> first_{};         // of the tails that left in a cycle
};

}  // namespace fabric
