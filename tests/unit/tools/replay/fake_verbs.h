// A device made of memory: the verbs that the tools use, linked in front of libibverbs, so that a
// replayer and a generator can be tested without a cluster, with faults on demand. All contexts of
// the process share one "fabric"; each opened device is a node with the next LID. Time goes on by
// 2 ms whenever all open devices have polled, so the clock of the host decides nothing.
#pragma once

#include <atomic>
#include <cstdint>
#include <utility>

namespace tools::fake {

// Set before the devices are used; 0 = never.
struct Faults {
  std::atomic<std::uint32_t> corrupt_every{0};    // message: one byte of it is changed
  std::atomic<std::uint32_t> behead_every{0};     // message: one byte of its head is changed
  std::atomic<std::uint32_t> lose_every{0};       // UD message: it does not arrive
  std::atomic<std::uint32_t> double_every{0};     // UD message: it arrives twice
  std::atomic<std::uint32_t> outstanding_max{0};  // of a QP: beyond it ENOMEM, as without credit
  std::atomic<std::uint64_t> admit_kbps{0};       // in all; beyond it router 5 refuses
  std::atomic<std::uint64_t> admit_ns{0};         // that an admission takes
  std::atomic<std::uint64_t> delay_ns{20'000};    // from the last packet's launch to arrival
  std::atomic<std::uint32_t> late_every{0};       // message: it takes 50 ms more
  std::atomic<bool> dead{false};                  // the device fails at the next poll
  std::atomic<std::uint32_t> cqe{0};              // said, not asked: entries of the newest queue
  std::atomic<std::uint32_t> burst{0};            // said: max_burst_sz of the newest request
  // Called once, on the sender's thread, when that many messages have been posted in all.
  std::pair<std::uint64_t, void (*)()> at_message{0, nullptr};
  void clear();
};
Faults& faults();

}  // namespace tools::fake
