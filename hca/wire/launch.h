// Messages that wait for their launch cycle, earliest first, submission order among equals. Filled
// by Network::submit, emptied at the start of every cycle. A calendar of the cycles of one window,
// and a binary heap for what lies outside; both of fixed capacity. Most messages are handed in
// shortly before they leave and never see the heap.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <vector>

#include "emu/base/units.h"
#include "hca/wire/message.h"

namespace hca {

class LaunchQueue {
 public:
  // A message is in one queue at a time, its lane's or this one: both go through message.next.
  explicit LaunchQueue(MessageTable& messages) : messages_(&messages) {
    far_.reserve(messages.size());
  }

  emu::Cycle next() const {
    return far_.empty() ? near_next_ : std::min(near_next_, far_.front().launch);
  }
  void push(emu::Cycle launch, MessageId id) {
    if (near_next_ == emu::kNever && far_.empty()) window_ = launch / kWindow;
    if (launch / kWindow == window_) return push_near(launch, id);
    far_.push_back({launch, sequence_++, id});
    std::push_heap(far_.begin(), far_.end(), later);
  }
  // Of next().
  MessageId pop() {
    // What is in the heap lies in other windows: no launch is in both.
    if (!far_.empty() && far_.front().launch < near_next_) {
      const MessageId id = pop_far();
      if (near_next_ == emu::kNever) open_window();
      return id;
    }
    Day& day = days_[near_next_ % kWindow];
    const MessageId id = day.first;
    day.first = (*messages_)[id].next;
    if (day.first == kNoMessage) {
      std::uint64_t& word = busy_[near_next_ % kWindow / 64];
      word &= word - 1;
      busy_words_ ^= static_cast<unsigned>(word == 0) << near_next_ % kWindow / 64;
      near_next_ = next_day();
      if (near_next_ == emu::kNever) open_window();
    }
    return id;
  }

 private:
  static constexpr emu::Cycle kWindow = 512;
  struct Entry {
    emu::Cycle launch;
    std::uint64_t sequence;
    MessageId id;
  };
  struct Day {  // of one cycle, a list through message.next
    MessageId first = kNoMessage;
    MessageId last = kNoMessage;
  };

  static bool later(const Entry& a, const Entry& b) {
    return a.launch != b.launch ? a.launch > b.launch : a.sequence > b.sequence;
  }
  [[gnu::noinline]] MessageId pop_far() {
    std::pop_heap(far_.begin(), far_.end(), later);
    const MessageId id = far_.back().id;
    far_.pop_back();
    return id;
  }
  void push_near(emu::Cycle launch, MessageId id) {
    Day& day = days_[launch % kWindow];
    (*messages_)[id].next = kNoMessage;
    (day.first == kNoMessage ? day.first : (*messages_)[day.last].next) = id;
    day.last = id;
    busy_[launch % kWindow / 64] |= std::uint64_t{1} << launch % 64;
    busy_words_ |= 1U << launch % kWindow / 64;
    near_next_ = std::min(near_next_, launch);
  }
  // The first cycle of the window with a message.
  emu::Cycle next_day() const {
    if (busy_words_ == 0) return emu::kNever;
    const auto w = static_cast<unsigned>(std::countr_zero(busy_words_));
    return window_ * kWindow + w * 64 + static_cast<unsigned>(std::countr_zero(busy_[w]));
  }
  // The calendar is empty: it takes the earliest window of the heap, in order.
  [[gnu::noinline]] void open_window() {
    if (far_.empty()) return;
    window_ = far_.front().launch / kWindow;
    while (!far_.empty() && far_.front().launch / kWindow == window_) {
      const emu::Cycle launch = far_.front().launch;
      push_near(launch, pop_far());
    }
  }

  emu::Cycle window_ = 0;  // number of the calendar's window
  emu::Cycle near_next_ = emu::kNever;
  std::array<std::uint64_t, kWindow / 64> busy_{};  // days with a message
  unsigned busy_words_ = 0;                         // words that are not 0
  std::array<Day, kWindow> days_{};
  MessageTable* messages_;
  std::vector<Entry> far_;
  std::uint64_t sequence_ = 0;
};

}  // namespace hca
