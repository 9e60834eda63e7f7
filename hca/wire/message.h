// The worms under way: one record each, in a table of fixed size that is split among the senders.
// The engine moves indexes of this table. Written by hca/wire at submit and delivery, and by stage
// 2 of a router (rejected_by); read at heads and tails only.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "emu/base/huge.h"
#include "hca/wire/packet.h"

namespace hca {

using MessageId = std::uint32_t;
inline constexpr MessageId kNoMessage = ~MessageId{0};

struct Message {
  std::uint64_t cookie;
  emu::Cycle launch;  // ready to leave: max(asked, submitted)
  emu::Cycle head_cycle;
  std::uint32_t handle;
  MessageId next;  // in the queue of its lane at the HCA, or in the free list
  std::uint16_t flits;
  emu::NodeId src;
  emu::NodeId dest;
  emu::Vtick vtick;
  emu::RouterId rejected_by;
  emu::NodeId owner;  // whose share of the table it is
  std::uint16_t stream;
  emu::Vl vl_in;
  emu::Vl vl_out;
  emu::TrafficClass traffic_class;
  emu::PacketKind kind;
  bool is_answer;  // a probe on its way back
  // Its destination in the version of the routes that it keeps to, from when its head leaves.
  std::uint32_t way;
};
static_assert(sizeof(Message) <= 64, "one cache line a message");

// It is turned round where it arrives.
inline bool turns_round(const Message& message) {
  return message.kind == emu::PacketKind::probe && !message.is_answer;
}
// A probe's record becomes its answer, on the lane that it came on, ready in the next cycle: this
// cannot run out of room.
inline void turn_round(Message& probe, std::uint16_t answer_flits, emu::Cycle now) {
  std::swap(probe.src, probe.dest);
  probe.is_answer = true;
  probe.flits = answer_flits;
  probe.vl_in = probe.vl_out;
  probe.launch = now + 1;
}

// The table with a free list per sender.
class MessageTable {
 public:
  MessageTable(int nodes, int per_node);
  Message& operator[](MessageId id) { return messages_[id]; }
  const Message& operator[](MessageId id) const { return messages_[id]; }
  // kNoMessage when the sender's share is used up.
  MessageId take(emu::NodeId owner);
  void give_back(MessageId id);
  int room(emu::NodeId owner) const { return room_[owner]; }
  std::size_t size() const { return messages_.size(); }

  // Asks for the message that is behind this one in its lane: it may have waited there for long,
  // and is needed when this one's tail has left.
  void fetch_next(const Message& message) const {
    if (message.next != kNoMessage) __builtin_prefetch(&messages_[message.next]);
  }
  // Its head leaves its HCA, and goes by the routes of now.
  void depart(MessageId id, emu::Cycle now) {
    Message& message = messages_[id];
    message.head_cycle = now;
    message.way = first_way_ + message.dest;
  }
  // From now on: the way to destination 0 in the version of the routes that is in force.
  void set_first_way(std::uint32_t first_way) { first_way_ = first_way; }
  // Whether any message under way, or delivered and not yet given back, goes by ways first ...
  // last.
  bool any_on(std::uint32_t first, std::uint32_t last) const;

 private:
  std::vector<Message, emu::HugePages<Message>> messages_;
  std::vector<MessageId> free_;  // [node] first of its free list
  std::vector<int> room_;        // [node]
  std::uint32_t first_way_ = 0;
};

}  // namespace hca
