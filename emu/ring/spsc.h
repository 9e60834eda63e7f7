// One producer, one consumer, entries of fixed size in memory that two processes share. Indices run
// free (64 bit, never wrapped) under a mask. Each side keeps its own index and its last view of the
// peer's in private memory and only publishes to the shared words, so a peer that scribbles over
// the shared page can spoil the entries and can stop the ring, but can neither make this side
// touch memory outside the ring nor loop: what it claims is checked against the capacity.
//
// In: entries by push() in the producer's process. Out: the same, in order, by pop() in the
// consumer's. Called by fabric/port/shm, hca/attach/shm, hca/daemon and hca/verbs.
#pragma once

#include <atomic>
#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>

#include "emu/base/check.h"
#include "emu/base/prefetch.h"

namespace emu {

template <class T>
concept RingEntry = std::is_trivially_copyable_v<T> && alignof(T) <= kCacheLine;

// The shared words; entries follow at the next cache line. Zeroed memory is an empty ring, so
// nothing needs to be initialised in a fresh region.
struct RingWords {
  alignas(kCacheLine) std::atomic<std::uint64_t> tail;  // entries ever pushed; producer writes
  alignas(kCacheLine) std::atomic<std::uint64_t> head;  // entries ever popped; consumer writes
};
static_assert(sizeof(RingWords) == 2 * kCacheLine && alignof(RingWords) == kCacheLine);
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

// Bytes that a ring of `capacity` entries (a power of two) needs; start it on a cache line.
template <RingEntry T>
constexpr std::size_t ring_bytes(std::size_t capacity) {
  return (sizeof(RingWords) + capacity * sizeof(T) + kCacheLine - 1) & ~(kCacheLine - 1);
}

// Where one ring lies. `base` must have ring_bytes<T>(capacity) bytes behind it that stay mapped
// (see Region::at, which checks that), capacity is what this side decided, never what it was told.
template <RingEntry T>
class RingView {
 public:
  RingView() = default;
  RingView(void* base, std::size_t capacity)
      : words_(static_cast<RingWords*>(base)),
        entries_(static_cast<std::byte*>(base) + sizeof(RingWords)),
        capacity_(capacity) {
    CHECK(std::has_single_bit(capacity));
    CHECK(reinterpret_cast<std::uintptr_t>(base) % kCacheLine == 0);
  }
  RingWords& words() const { return *words_; }
  std::size_t capacity() const { return capacity_; }

  // Copies entries between private memory and the slots from index `first` on, around the end.
  void put(std::uint64_t first, const T* from, std::size_t count) const {
    const std::size_t at = first & (capacity_ - 1);
    if (count == 1) {  // most often: a length that the compiler knows
      std::memcpy(entries_ + at * sizeof(T), from, sizeof(T));
      return;
    }
    const std::size_t before_end = count < capacity_ - at ? count : capacity_ - at;
    std::memcpy(entries_ + at * sizeof(T), from, before_end * sizeof(T));
    std::memcpy(entries_, from + before_end, (count - before_end) * sizeof(T));
  }
  void get(std::uint64_t first, T* to, std::size_t count) const {
    const std::size_t at = first & (capacity_ - 1);
    if (count == 1) {
      std::memcpy(to, entries_ + at * sizeof(T), sizeof(T));
      return;
    }
    const std::size_t before_end = count < capacity_ - at ? count : capacity_ - at;
    std::memcpy(to, entries_ + at * sizeof(T), before_end * sizeof(T));
    std::memcpy(to + before_end, entries_, (count - before_end) * sizeof(T));
  }

 private:
  RingWords* words_ = nullptr;
  std::byte* entries_ = nullptr;
  std::size_t capacity_ = 0;
};

// The writing end. One thread at a time.
template <RingEntry T>
class RingProducer {
 public:
  RingProducer() = default;
  explicit RingProducer(RingView<T> ring) : ring_(ring) {}

  // Room for at least `wanted` entries? Answers with the room known, reading the peer's index only
  // when the last view of it is not enough.
  std::size_t room(std::size_t wanted = 1) {
    std::size_t free = ring_.capacity() - static_cast<std::size_t>(tail_ - head_seen_);
    if (free < wanted) free = refresh_room();
    return free;
  }
  // Pushes as many as fit and returns how many.
  std::size_t push(std::span<const T> entries) {
    const std::size_t free = room(entries.size());
    const std::size_t count = entries.size() < free ? entries.size() : free;
    if (count == 0) return 0;
    ring_.put(tail_, entries.data(), count);
    tail_ += count;
    // Release: the entries are written before the index that offers them. Pairs with the acquire
    // in RingConsumer::refresh_available.
    ring_.words().tail.store(tail_, std::memory_order_release);
    return count;
  }
  bool push(const T& entry) { return push(std::span<const T>(&entry, 1)) == 1; }

  // Entries pushed and not yet popped, as far as the peer says.
  std::size_t pending() {
    refresh_room();
    return static_cast<std::size_t>(tail_ - head_seen_);
  }
  // Entries ever popped, as far as the peer says. Grows only.
  std::uint64_t popped() {
    refresh_room();
    return head_seen_;
  }
  // The peer published an index that cannot be: its memory is scribbled over. The ring stays safe
  // to use; the owner should detach the peer.
  bool broken() const { return broken_; }
  std::size_t capacity() const { return ring_.capacity(); }

 private:
  std::size_t refresh_room() {
    // Acquire: the consumer has finished reading the slots before it gave them back. Pairs with
    // the release in RingConsumer::pop.
    const std::uint64_t head = ring_.words().head.load(std::memory_order_acquire);
    // An honest head only grows and never passes the tail.
    if (head - head_seen_ > tail_ - head_seen_) {
      broken_ = true;
    } else {
      head_seen_ = head;
    }
    return ring_.capacity() - static_cast<std::size_t>(tail_ - head_seen_);
  }

  RingView<T> ring_;
  std::uint64_t tail_ = 0;
  std::uint64_t head_seen_ = 0;
  bool broken_ = false;
};

// The reading end. One thread at a time. An entry is copied out once and judged afterwards: what
// the peer changes later in shared memory is not seen again.
template <RingEntry T>
class RingConsumer {
 public:
  RingConsumer() = default;
  explicit RingConsumer(RingView<T> ring) : ring_(ring) {}

  std::size_t available(std::size_t wanted = 1) {
    std::size_t count = static_cast<std::size_t>(tail_seen_ - head_);
    if (count < wanted) count = refresh_available();
    return count;
  }
  // Pops as many as there are, at most entries.size(), and returns how many.
  std::size_t pop(std::span<T> entries) {
    const std::size_t ready = available(entries.size());
    const std::size_t count = entries.size() < ready ? entries.size() : ready;
    if (count == 0) return 0;
    ring_.get(head_, entries.data(), count);
    head_ += count;
    // Release: the slots are read before they are given back. Pairs with the acquire in
    // RingProducer::refresh_room.
    ring_.words().head.store(head_, std::memory_order_release);
    return count;
  }
  bool pop(T& entry) { return pop(std::span<T>(&entry, 1)) == 1; }

  bool empty() { return available() == 0; }
  bool broken() const { return broken_; }  // as in RingProducer
  std::size_t capacity() const { return ring_.capacity(); }

 private:
  std::size_t refresh_available() {
    // Acquire: pairs with the release in RingProducer::push.
    const std::uint64_t tail = ring_.words().tail.load(std::memory_order_acquire);
    // An honest tail only grows and is at most a capacity ahead of what was popped. Of a broken
    // one nothing more is believed, what was seen before is still handed out.
    if (tail - head_ > ring_.capacity() || tail - head_ < tail_seen_ - head_) {
      broken_ = true;
    } else {
      tail_seen_ = tail;
    }
    return static_cast<std::size_t>(tail_seen_ - head_);
  }

  RingView<T> ring_;
  std::uint64_t head_ = 0;
  std::uint64_t tail_seen_ = 0;
  bool broken_ = false;
};

}  // namespace emu
