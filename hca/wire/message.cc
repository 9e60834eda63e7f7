#include "hca/wire/message.h"

namespace hca {

MessageTable::MessageTable(int nodes, int per_node)
    : messages_(static_cast<std::size_t>(nodes) * static_cast<std::size_t>(per_node)),
      free_(static_cast<std::size_t>(nodes), kNoMessage),
      room_(static_cast<std::size_t>(nodes), 0) {
  for (std::size_t i = messages_.size(); i-- > 0;) {
    messages_[i].owner = static_cast<emu::NodeId>(i / static_cast<std::size_t>(per_node));
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
  message.next = free_[message.owner];
  free_[message.owner] = id;
  ++room_[message.owner];
}

}  // namespace hca
