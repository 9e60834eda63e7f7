// A flit and the ring that buffers them: what the general engine moves. Used by everything
// general_*.
#pragma once

#include <cstdint>

#include "emu/base/check.h"
#include "hca/wire/message.h"

namespace fabric::general {

using Stamp = std::int64_t;  // cycles, or rounds of a fair queue; may lie before the first

inline constexpr int kLanesMax = 32;   // of a link; those of messages are emu::kVlCount
inline constexpr int kLevelsMax = 3;   // priorities that have buffers of their own in one lane
inline constexpr int kPortsMax = 64;   // of a router: bits of PortBits
inline constexpr int kQueuesMax = 64;  // input buffers of a port: bits of QueueBits
using LaneBits = std::uint32_t;
using PortBits = std::uint64_t;
using QueueBits = std::uint64_t;  // bit level * kVlCount + lane
constexpr LaneBits lane_bit(unsigned lane) { return LaneBits{1} << lane; }
constexpr QueueBits queue_bit(unsigned queue) { return QueueBits{1} << queue; }
constexpr PortBits port_bit(unsigned port) { return PortBits{1} << port; }
inline constexpr LaneBits kLanesOfLevel = (LaneBits{1} << emu::kVlCount) - 1;
static_assert(emu::kVlCount * kLevelsMax <= kQueuesMax && kLanesMax <= kQueuesMax);

struct Flit {
  // For routers: where a worm begins and ends. For receivers: where its message does.
  enum Mark : std::uint8_t { head = 1, tail = 2, last = 4, dummy = 8, probe = 16 };
  hca::MessageId message = hca::kNoMessage;
  std::uint8_t marks = 0;
  std::uint8_t level = 0;
  Stamp stamp = 0;
  bool is(Mark mark) const { return (marks & mark) != 0; }
  // Nothing of its worm follows: behind a tail, and behind a probe until it is answered.
  bool ends_block() const { return (marks & (tail | probe)) != 0; }
};

// First in, first out, in memory of its owner; room for a power of two.
class FlitRing {
 public:
  void use(Flit* memory, std::uint32_t room) {
    flits_ = memory;
    mask_ = room - 1;
  }
  std::uint32_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  Flit& front() { return flits_[first_]; }
  const Flit& front() const { return flits_[first_]; }
  Flit& operator[](std::uint32_t i) { return flits_[(first_ + i) & mask_]; }
  void push(const Flit& flit) {
    CHECK(size_ <= mask_);
    flits_[(first_ + size_++) & mask_] = flit;
  }
  Flit pop() {
    const Flit flit = flits_[first_];
    // One that is empty begins anew, so that queues that are hardly used stay in the cache.
    first_ = --size_ == 0 ? 0 : (first_ + 1) & mask_;
    return flit;
  }

 private:
  Flit* flits_ = nullptr;
  std::uint32_t mask_ = 0;
  std::uint32_t first_ = 0;
  std::uint32_t size_ = 0;
};

}  // namespace fabric::general
