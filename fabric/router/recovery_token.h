// The one token of deadlock recovery (Anjan and Pinkston, Disha, ISCA 1995): a message that has it
// may use the recovery lanes. In: a message that captures it, deliveries. Out: where it is. Its
// place at the start of a cycle decides, so routers may be stepped in any order.
#pragma once

#include <cstddef>

#include "emu/base/check.h"
#include "hca/wire/message.h"

namespace fabric {

class RecoveryToken {
 public:
  // While nobody has it, it is at router 0 in cycle `start` and at the next one in each cycle.
  RecoveryToken(std::size_t routers, emu::Cycle start) : routers_(routers), free_since_(start) {}

  bool is_at(std::size_t router, emu::Cycle now) const {
    return holder_ == hca::kNoMessage && now >= free_since_ &&
           (from_ + (now - free_since_)) % routers_ == router;
  }
  bool has(hca::MessageId message) const { return holder_ == message; }
  // By a message whose head is at the token's router.
  void capture(hca::MessageId message) {
    CHECK(holder_ == hca::kNoMessage);
    holder_ = message;
  }
  // A tail left `router` and reached its node: whoever has the token leaves it there, for the next
  // cycle.
  void delivered(hca::MessageId message, std::size_t router, emu::Cycle now) {
    if (!has(message)) return;
    holder_ = hca::kNoMessage;
    from_ = router;
    free_since_ = now + 1;
  }

 private:
  std::size_t routers_;
  hca::MessageId holder_ = hca::kNoMessage;
  std::size_t from_ = 0;  // where it was when it was let go
  emu::Cycle free_since_;
};

}  // namespace fabric
