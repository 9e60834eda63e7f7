// Messages that wait for their launch cycle, earliest first, submission order among equals: a
// binary heap of fixed capacity. Filled by Network::submit, emptied at the start of every cycle.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "emu/base/units.h"
#include "hca/wire/message.h"

namespace hca {

class LaunchQueue {
 public:
  explicit LaunchQueue(std::size_t capacity) { heap_.reserve(capacity); }

  emu::Cycle next() const { return heap_.empty() ? emu::kNever : heap_.front().launch; }
  void push(emu::Cycle launch, MessageId id) {
    heap_.push_back({launch, sequence_++, id});
    std::push_heap(heap_.begin(), heap_.end(), later);
  }
  MessageId pop() {
    std::pop_heap(heap_.begin(), heap_.end(), later);
    const MessageId id = heap_.back().id;
    heap_.pop_back();
    return id;
  }

 private:
  struct Entry {
    emu::Cycle launch;
    std::uint64_t sequence;
    MessageId id;
  };
  static bool later(const Entry& a, const Entry& b) {
    return a.launch != b.launch ? a.launch > b.launch : a.sequence > b.sequence;
  }
  std::vector<Entry> heap_;
  std::uint64_t sequence_ = 0;
};

}  // namespace hca
