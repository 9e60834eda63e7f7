// What happened at the HCAs since the caller last looked. Room for one of each kind per message of
// the table is reserved at start; a message's place in the table is free again only after clear(),
// so none of these can overflow.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "hca/wire/message.h"
#include "hca/wire/packet.h"

namespace hca {

struct Events {
  std::vector<InjectedEvent> injected;
  std::vector<DeliveredEvent> delivered;
  std::vector<AnswerEvent> answers;
  std::vector<MessageId> done;  // messages whose story has ended
  std::uint64_t digest = 0x9e3779b97f4a7c15ULL;
  int live = 0;              // messages ready or in the fabric
  emu::Cycle last_done = 0;  // cycle of the last delivery; 0: none yet

  explicit Events(std::size_t messages) {
    injected.reserve(messages);
    delivered.reserve(messages);
    answers.reserve(messages);
    done.reserve(messages);
  }
  // The tail of a message has left its HCA.
  void tail_left(const Message& message, emu::Cycle now) {
    if (message.is_answer) return;
    injected.push_back({.cookie = message.cookie,
                        .head_cycle = message.head_cycle,
                        .tail_cycle = now,
                        .handle = message.handle,
                        .flits = message.flits,
                        .node = message.src,
                        .traffic_class = message.traffic_class,
                        .kind = message.kind});
    mix(now << 16 ^ message.src ^ message.cookie << 8);
  }
  // It has arrived. False: a probe, which has to turn round; else its story has ended.
  bool tail_arrived(MessageId id, const Message& message, emu::Cycle now) {
    mix(now << 16 ^ message.dest ^ message.cookie << 8 ^ message.head_cycle << 32);
    if (turns_round(message)) return false;
    if (message.is_answer) {
      answers.push_back({.cookie = message.cookie,
                         .cycle = now,
                         .handle = message.handle,
                         .rejected_by = message.rejected_by,
                         .node = message.dest,
                         .dest = message.src});
    } else {
      delivered.push_back({.cookie = message.cookie,
                           .launch = message.launch,
                           .head_cycle = message.head_cycle,
                           .tail_cycle = now,
                           .handle = message.handle,
                           .flits = message.flits,
                           .node = message.dest,
                           .src = message.src,
                           .vl = message.vl_out,
                           .traffic_class = message.traffic_class,
                           .kind = message.kind});
    }
    done.push_back(id);
    --live;
    last_done = now;
    return true;
  }
  // A sum: events of one cycle count alike in whatever order they are told.
  // What happened at the HCAs of parts of the network, one after the other in the order of nodes,
  // joins this in the order of cycles, then parts; they are empty afterwards.
  void take(std::span<Events> parts);

  void mix(std::uint64_t value) {
    value = (value ^ value >> 32) * 0xff51afd7ed558ccdULL;
    value = (value ^ value >> 29) * 0xc4ceb9fe1a85ec53ULL;
    digest += value ^ value >> 32;
  }
};

}  // namespace hca
