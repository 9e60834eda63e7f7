// The wire halves of up to 64 HCAs: VL buffers, VL arbiter, one flit a cycle onto the link as far
// as there are credits; and the receiving end, which takes one flit a cycle from each link and
// always has room. Messages come from Network::submit through ready(); flits and credits go into
// the rows of the links; events go into Events. Stepped by fabric/router's network.
#pragma once

#include <array>
#include <bit>

#include "emu/lane/port_lanes.h"
#include "emu/lane/row.h"
#include "emu/lane/words.h"
#include "hca/wire/events.h"
#include "hca/wire/message.h"

namespace hca {

// Buffers of routers hold less than 2^kPlanes flits.
template <int kPlanes, class Scheduler>
class WireBlock {
 public:
  struct Setting {
    unsigned first_node;
    unsigned nodes;
    unsigned buffer_flits;
    std::uint16_t answer_flits;
    emu::LaneMask yields;  // lanes of best effort, if classes have strict priority; else none
    bool gives_credits;    // else nobody waits for them: of what comes tails alone are looked at
  };
  WireBlock(const Setting& setting, MessageTable& messages, Events& events)
      : setting_(setting), messages_(messages), events_(events) {
    front_.fill(kNoMessage);
    for (unsigned n = 0; n < setting.nodes; ++n)
      for (unsigned v = 0; v < emu::kVlCount; ++v) lanes_.credits.set(n, v, setting.buffer_flits);
  }
  Scheduler& scheduler() { return scheduler_; }
  // The link of a node leads to a port.
  void lead_to(unsigned node, emu::LinkPlace place) { peer_[node] = place; }

  // A message joins the queue of its lane; it may leave from cycle message.launch on.
  void ready(MessageId id, emu::Cycle now) {
    Message& message = messages_[id];
    message.next = kNoMessage;
    const unsigned node = message.src - setting_.first_node;
    const unsigned i = emu::block_lane(node, message.vl_in);
    ++backlog_[node];
    if (front_[i] == kNoMessage) {
      last_[i] = id;
      bring_to_front(i, id, now);
    } else {
      messages_[last_[i]].next = id;
      last_[i] = id;
    }
  }

  // `here`: of this block; `there`: a row.
  template <emu::Isa kIsa>
  void step(emu::LinkBlock& here, emu::LinkBlock* there, emu::Cycle now) {
    const unsigned ports = setting_.nodes;
    const std::uint64_t able = emu::ready_to_send<kIsa>(lanes_, here.credits, ports);
    const std::uint64_t left = able != 0 ? send<kIsa>(able, there, now) : 0;
    const std::uint64_t arrived = emu::marked_bytes<kIsa>(here.named.data(), ports);
    if (setting_.gives_credits) give_credits<kIsa>(here, there);
    if ((left | arrived) != 0) ends(left, arrived, here, now);
    if (setting_.gives_credits) here.flits = {};
  }
  void age(std::uint64_t moved) { scheduler_.age(moved); }

  int backlog(unsigned node) const { return backlog_[node]; }
  unsigned credits(unsigned node, unsigned vl) const {
    return lanes_.credits.get(node, vl) - (lanes_.sent[node] >> vl & 1U);
  }
  struct Counter {
    std::uint64_t flits = 0;
    std::uint64_t packets = 0;
  };
  const Counter& sent(unsigned node, unsigned vl) const { return sent_[emu::block_lane(node, vl)]; }
  const Counter& received(unsigned node, unsigned vl) const {
    return received_[emu::block_lane(node, vl)];
  }
  std::uint64_t wait_cycles(unsigned node) const {
    return wait_cycles_[node] + lanes_.recent_wait[node];
  }
  // Must be called at least every 65535 cycles.
  void flush_counters() {
    for (unsigned n = 0; n < emu::kBlockPorts; ++n) wait_cycles_[n] += lanes_.recent_wait[n];
    lanes_.recent_wait = {};
  }

 private:
  // Flits of a lane's front message that have not left; the highest bit is set as long as its head
  // has not.
  using Left = std::uint16_t;
  static constexpr Left kHeadDue = 1 << 15;
  static_assert(kFlitsMax < kHeadDue);

  void bring_to_front(unsigned i, MessageId id, emu::Cycle now) {
    const Message& message = messages_[id];
    front_[i] = id;
    left_[i] = static_cast<Left>(message.flits | kHeadDue);
    emu::add_lane(lanes_.waiting[emu::port_of_lane(i)], emu::vl_of_lane(i));
    scheduler_.front(i, message.launch, now, message.vtick);
  }

  // One flit of each of these nodes. Returns those from which a tail has left.
  template <emu::Isa kIsa>
  std::uint64_t send(std::uint64_t nodes, emu::LinkBlock* there, emu::Cycle now) {
    std::uint64_t tails = 0;
    for (; nodes != 0; nodes &= nodes - 1) {
      const unsigned node = emu::first_of(nodes);
      const unsigned able = lanes_.able[node];
      const unsigned firm = able & ~unsigned{setting_.yields};
      const unsigned vl = scheduler_.template pick<kIsa>(node, firm != 0 ? firm : able).lane;
      const unsigned i = emu::block_lane(node, vl);
      if ((--left_[i] & kHeadDue) != 0) [[unlikely]]
        head_leaves(node, i, there, now);
      const bool tail = left_[i] == 0;
      tails |= std::uint64_t{tail} << node;
      scheduler_.sent(i, tail, now);
      lanes_.sent[node] = emu::lane_bit(vl);
      emu::put_flit(there, peer_[node], emu::lane_bit(vl));
    }
    return tails;
  }
  template <emu::Isa kIsa>
  void give_credits(emu::LinkBlock& here, emu::LinkBlock* there) const {
    for (std::uint64_t bits = emu::common_words<kIsa>(here.flits, here.flits, setting_.nodes);
         bits != 0; bits &= bits - 1) {
      const unsigned node = emu::first_of(bits);
      emu::put_credit(there, peer_[node], here.flits[node]);
    }
  }
  [[gnu::noinline]] void head_leaves(unsigned node, unsigned i, emu::LinkBlock* there,
                                     emu::Cycle now) {
    left_[i] &= static_cast<Left>(~kHeadDue);
    messages_.depart(front_[i], now);
    emu::put_name(there, peer_[node], front_[i]);
  }

  // Events by groups of eight nodes: what has left, then what has arrived.
  [[gnu::noinline]] void ends(std::uint64_t left, std::uint64_t arrived, emu::LinkBlock& here,
                              emu::Cycle now) {
    constexpr std::uint64_t kGroup = 0xff;
    for (unsigned first = 0; first < setting_.nodes; first += emu::kPortsMax) {
      for (std::uint64_t bits = left & kGroup << first; bits != 0; bits &= bits - 1)
        tail_left(emu::first_of(bits), now);
      for (std::uint64_t bits = arrived & kGroup << first; bits != 0; bits &= bits - 1) {
        const unsigned node = emu::first_of(bits);
        tail_arrived(emu::block_lane(node, emu::first_of(here.flits[node])), here.names[node], now);
        here.named[node] = 0;
        here.flits[node] = 0;
      }
    }
  }
  void tail_left(unsigned node, emu::Cycle now) {
    const unsigned vl = emu::first_of(lanes_.sent[node]);
    const unsigned i = emu::block_lane(node, vl);
    const Message& message = messages_[front_[i]];
    --backlog_[node];
    sent_[i].flits += message.flits;
    ++sent_[i].packets;
    events_.tail_left(message, now);
    const MessageId next = message.next;
    front_[i] = kNoMessage;
    emu::drop_lane(lanes_.waiting[node], vl);
    if (next != kNoMessage) bring_to_front(i, next, now);
  }
  void tail_arrived(unsigned i, MessageId id, emu::Cycle now) {
    Message& message = messages_[id];
    received_[i].flits += message.flits;
    ++received_[i].packets;
    if (events_.tail_arrived(id, message, now)) return;
    turn_round(message, setting_.answer_flits, now);
    ready(id, now);
  }

  emu::SourceLanes<kPlanes> lanes_;  // [node]
  std::array<emu::LinkPlace, emu::kBlockPorts> peer_{};
  alignas(64) std::array<Left, emu::kBlockLanes> left_{};
  Scheduler scheduler_;
  Setting setting_;
  MessageTable& messages_;
  Events& events_;
  // Touched at heads and tails only.
  std::array<MessageId, emu::kBlockLanes> front_{};
  std::array<MessageId, emu::kBlockLanes> last_{};
  // Cold.
  std::array<int, emu::kBlockPorts> backlog_{};
  std::array<Counter, emu::kBlockLanes> sent_{};
  std::array<Counter, emu::kBlockLanes> received_{};
  std::array<std::uint64_t, emu::kBlockPorts> wait_cycles_{};
};

}  // namespace hca
