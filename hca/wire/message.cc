#include "hca/wire/message.h"

#include <algorithm>

namespace hca {

MessageTable::MessageTable(int nodes, int per_node)
    : messages_(static_cast<std::size_t>(nodes) * static_cast<std::size_t>(per_node)),
      free_(static_cast<std::size_t>(nodes), kNoMessage),
      room_(static_cast<std::size_t>(nodes), 0) {
  for (std::size_t i = messages_.size(); i-- > 0;) {
    messages_[i].owner = static_cast<emu::NodeId>(i % static_cast<std::size_t>(nodes));
    give_back(static_cast<MessageId>(i));
  }
}

MessageId MessageTable::take(emu::NodeId owner) {
  const MessageId id = free_[owner];
  if (id == kNoMessage) return kNoMessage;
  free_[owner] = messages_[id].next;
  --room_[owner];
  return id;
}

void MessageTable::give_back(MessageId id) {
  Message& message = messages_[id];
  message.way = 0;
  message.next = free_[message.owner];
  free_[message.owner] = id;
  ++room_[message.owner];
}

bool MessageTable::any_on(std::uint32_t first, std::uint32_t last) const {
  return std::ranges::any_of(messages_, [&](const Message& message) {
    return message.way >= first && message.way <= last;
  });
}

}  // namespace hca
