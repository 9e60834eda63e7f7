// What happened at the HCAs since the caller last looked. Room for one of each kind per message of
// the table is reserved at start; a message's place in the table is free again only after clear(),
// so none of these can overflow.
#pragma once

#include <cstdint>
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
  void mix(std::uint64_t value) {
    digest = (digest ^ value) * 0xff51afd7ed558ccdULL;
    digest ^= digest >> 32;
  }
};

}  // namespace hca
