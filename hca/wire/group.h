// The wire halves of eight HCAs: VL buffers, VL arbiter, one flit a cycle onto the link as far as
// there are credits; and the receiving end, which takes one flit a cycle from each link and always
// has room. Messages come from Network::submit through ready(); flits and credits go into the boxes
// of the router; events go into Events. Stepped by fabric/router's network.
#pragma once

#include <array>

#include "emu/lane/box.h"
#include "emu/lane/planes.h"
#include "hca/wire/events.h"
#include "hca/wire/message.h"

namespace hca {

template <int kPlanes, class Scheduler>
class WireGroup {
 public:
  WireGroup(unsigned first_node, unsigned nodes, unsigned buffer_flits, std::uint16_t answer_flits,
            emu::Lanes8 yields, MessageTable& messages, Events& events)
      : yields_(yields),
        yield_(emu::any(yields)),
        messages_(messages),
        events_(events),
        first_node_(first_node),
        answer_flits_(answer_flits) {
    for (unsigned n = 0; n < nodes; ++n)
      for (unsigned v = 0; v < emu::kVlCount; ++v) credits_.set(n, v, buffer_flits);
    front_.fill(kNoMessage);
  }
  Scheduler& scheduler() { return scheduler_; }

  // A message joins the queue of its lane; it may leave from cycle message.launch on.
  void ready(MessageId id, emu::Cycle now) {
    Message& message = messages_[id];
    message.next = kNoMessage;
    const unsigned node = message.src - first_node_;
    const unsigned i = at(node, message.vl_in);
    ++backlog_[node];
    if (front_[i] == kNoMessage) {
      last_[i] = id;
      bring_to_front(node, message.vl_in, id, now);
    } else {
      messages_[last_[i]].next = id;
      last_[i] = id;
    }
  }

  template <emu::Isa kIsa>
  void step(emu::Box& box, emu::Box* next_row, const emu::Outlet& outlet, emu::Cycle now) {
    const Leaving leaving = choose<kIsa>(box.credits, now);
    tell<kIsa>(leaving, now, [&](unsigned node, unsigned, MessageId id) {
      emu::emit_name(next_row, outlet, node, id);
    });
    const emu::Lanes8 arrived = box.flits;
    receive(box, now);
    box.flits = emu::kNoLanes8;
    box.credits = emu::kNoLanes8;
    emu::emit(next_row, outlet, leaving.flits, arrived);
  }
  // The first half of a cycle decides what leaves, without a branch that is hard to predict; the
  // second tells of heads and tails: `head_leaves`(node, lane, message).
  struct Leaving {
    emu::Lanes8 flits{};
    emu::Lanes8 heads{};
    emu::Lanes8 ending{};  // perhaps tails
  };
  template <emu::Isa kIsa>
  Leaving choose(emu::Lanes8 returned, emu::Cycle now) {
    const emu::Lanes8 able = waiting_ & (credits_.nonzero() | returned);
    recent_wait_ -= emu::zero_words(able) & ~emu::zero_words(waiting_);
    if (!emu::any(able)) {
      credits_.add_one(returned);
      return {};
    }
    const emu::Lanes8 sent =
        scheduler_.template pick_lanes<kIsa>(yield_ ? emu::before_yielding(able, yields_) : able);
    credits_.change(returned, sent);
    const emu::Lanes8 ending = left_.take(sent);
    scheduler_.template sent<kIsa>(sent, ending, now);
    return {sent, sent & fresh_, ending};
  }
  template <emu::Isa kIsa, class HeadLeaves>
  void tell(const Leaving& leaving, emu::Cycle now, const HeadLeaves& head_leaves) {
    if (emu::any(leaving.heads))
      emu::apart<kIsa>([this, heads = leaving.heads, now, head_leaves] {
        heads_leave(heads, now, head_leaves);
      });
    if (emu::any(leaving.ending))
      emu::apart<kIsa>([this, ending = leaving.ending, now] { messages_end<kIsa>(ending, now); });
  }
  // The tail of a message comes by a lane of a node in cycle `now`, which may have passed if it
  // does not turn round.
  void tail_arrived(unsigned slot, MessageId id, emu::Cycle now) {
    Message& message = messages_[id];
    received_[slot].flits += message.flits;
    ++received_[slot].packets;
    if (events_.tail_arrived(id, message, now)) return;
    turn_round(message, answer_flits_, now);
    ready(id, now);
  }
  bool quiet() const { return !emu::any(waiting_); }
  void age(std::uint64_t moved) { scheduler_.age(moved); }

  int backlog(unsigned node) const { return backlog_[node]; }
  unsigned credits(unsigned node, unsigned lane) const { return credits_.get(node, lane); }
  struct Counter {
    std::uint64_t flits = 0;
    std::uint64_t packets = 0;
  };
  const Counter& sent(unsigned node, unsigned lane) const { return sent_[at(node, lane)]; }
  const Counter& received(unsigned node, unsigned lane) const { return received_[at(node, lane)]; }
  std::uint64_t wait_cycles(unsigned node) const { return wait_cycles_[node] + recent_wait_[node]; }
  // Must be called at least every 65535 cycles.
  void flush_counters() {
    for (unsigned n = 0; n < emu::kPortsMax; ++n) wait_cycles_[n] += recent_wait_[n];
    recent_wait_ = emu::kNoLanes8;
  }

 private:
  static constexpr unsigned kLanes = emu::kLaneSlots;
  static constexpr unsigned at(unsigned node, unsigned lane) { return emu::lane_slot(node, lane); }

  void bring_to_front(unsigned node, unsigned lane, MessageId id, emu::Cycle now) {
    const unsigned i = at(node, lane);
    const Message& message = messages_[id];
    const auto bit = static_cast<std::uint16_t>(1U << lane);
    front_[i] = id;
    messages_.fetch_next(message);
    left_.set(i, message.flits);
    waiting_[node] |= bit;
    fresh_[node] |= bit;
    scheduler_.front(node, lane, message.launch, now, message.vtick);
  }

  template <emu::Isa kIsa>
  void messages_end(emu::Lanes8 ending, emu::Cycle now) {
    const emu::Lanes8 tails = left_.ended(ending);
    const emu::Lanes8 go_on = ending & ~tails;
    if (emu::any(go_on)) scheduler_.template go_on<kIsa>(go_on, now);
    for (unsigned bits = emu::ports_of(tails); bits != 0; bits &= bits - 1) {
      const unsigned node = emu::first_bit(bits);
      tail_left(node, emu::first_bit(tails[node]), now);
    }
  }

  template <class HeadLeaves>
  void heads_leave(emu::Lanes8 heads, emu::Cycle now, const HeadLeaves& head_leaves) {
    fresh_ ^= heads;
    for (unsigned bits = emu::ports_of(heads); bits != 0; bits &= bits - 1) {
      const unsigned node = emu::first_bit(bits);
      const unsigned lane = emu::first_bit(heads[node]);
      const MessageId id = front_[at(node, lane)];
      messages_.depart(id, now);
      head_leaves(node, lane, id);
    }
  }

  void tail_left(unsigned node, unsigned lane, emu::Cycle now) {
    const unsigned i = at(node, lane);
    const Message& message = messages_[front_[i]];
    scheduler_.tail(i);
    --backlog_[node];
    sent_[i].flits += message.flits;
    ++sent_[i].packets;
    events_.tail_left(message, now);
    const MessageId next = message.next;
    front_[i] = kNoMessage;
    waiting_[node] &= static_cast<std::uint16_t>(~(1U << lane));
    if (next != kNoMessage) bring_to_front(node, lane, next, now);
  }

  void receive(emu::Box& box, emu::Cycle now) {
    if (!emu::has_names(box)) return;
    for (unsigned bits = emu::ports_named(box); bits != 0; bits &= bits - 1) {
      const unsigned node = emu::first_bit(bits);
      tail_arrived(at(node, emu::first_bit(box.flits[node])), emu::named_at(box, node), now);
    }
    emu::clear_names(box);
  }

  // Lanes of eight nodes, written here only.
  emu::Counts<kPlanes> credits_;
  emu::Lanes8 waiting_ = emu::kNoLanes8;  // lanes with a message in front
  emu::Lanes8 fresh_ = emu::kNoLanes8;    // its head has not left
  emu::Lanes8 recent_wait_ = emu::kNoLanes8;
  emu::Lanes8 yields_;  // lanes of best effort, if classes have strict priority; else none
  bool yield_;          // there are any
  Scheduler scheduler_;
  emu::Countdown left_;  // flits of the front message to send
  std::array<MessageId, kLanes> front_{};
  std::array<MessageId, kLanes> last_{};
  MessageTable& messages_;
  Events& events_;

  // Cold.
  unsigned first_node_;
  std::uint16_t answer_flits_;
  std::array<int, emu::kPortsMax> backlog_{};
  std::array<Counter, kLanes> sent_{};
  std::array<Counter, kLanes> received_{};
  std::array<std::uint64_t, emu::kPortsMax> wait_cycles_{};
};

}  // namespace hca
