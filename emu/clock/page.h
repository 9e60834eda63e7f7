// The clock page: <run>/clock.page, written by fabricd after each turn, mapped read-only by every
// process of the host that wants emulated time. It outlives fabricd, so time goes on from it after
// a restart and never runs backwards.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "emu/base/result.h"
#include "emu/base/units.h"
#include "emu/clock/pace.h"

namespace emu {

inline constexpr std::uint32_t kClockPageMagic = 0x6b6c4346;  // "FClk"
inline constexpr std::uint32_t kClockPageVersion = 1;

// One writer (fabricd). `cycle` is one atomic word: readers of time alone need no sequence. The
// rest is read under the sequence: odd while it is being written.
struct ClockPage {
  std::uint32_t magic;
  std::uint32_t version;
  std::atomic<std::uint64_t> cycle;
  std::atomic<std::uint64_t> cycle_ps;
  std::atomic<std::uint64_t> fabric_pid;  // 0: no fabric runs, time stands still
  std::uint64_t pad[4];

  std::atomic<std::uint64_t> sequence;
  std::atomic<std::uint64_t> mode;  // ClockMode
  std::atomic<std::uint64_t> lag_ns;
  std::atomic<std::uint64_t> lag_p99_ns;
  std::atomic<std::uint64_t> given_up_ns;
  std::atomic<std::uint64_t> dilation_ppm;         // overall: 1'000'000 = host and emulated alike
  std::atomic<std::uint64_t> dilation_window_ppm;  // over the last second or so
  std::uint64_t pad2[1];
};
static_assert(sizeof(ClockPage) == 128 && std::atomic<std::uint64_t>::is_always_lock_free);

struct ClockReading {
  Cycle cycle = 0;
  CycleTime cycle_time;
  ClockMode mode = ClockMode::elastic;
  std::uint64_t lag_ns = 0;
  std::uint64_t lag_p99_ns = 0;
  std::uint64_t given_up_ns = 0;
  double dilation = 1.0;
  double dilation_window = 1.0;
  bool running = false;
};

// fabricd's side. Creates the page, or takes over the one that is there with its time.
class ClockWriter {
 public:
  static Result<ClockWriter> open(const std::string& path, CycleTime cycle_time, ClockMode mode);
  ClockWriter(ClockWriter&& other) noexcept;
  ClockWriter& operator=(ClockWriter&& other) noexcept;
  ~ClockWriter();  // marks the clock as standing; leaves the file

  Cycle start_cycle() const { return start_cycle_; }
  void publish(Cycle cycle) { page_->cycle.store(cycle, std::memory_order_release); }
  void publish_state(const Pace& pace);

 private:
  ClockWriter() = default;
  ClockPage* page_ = nullptr;
  Cycle start_cycle_ = 0;
};

// Everybody else's side.
class ClockReader {
 public:
  static Result<ClockReader> open(const std::string& path);
  ClockReader(ClockReader&& other) noexcept;
  ClockReader& operator=(ClockReader&& other) noexcept;
  ~ClockReader();

  Cycle cycle() const { return page_->cycle.load(std::memory_order_acquire); }
  EmuNs now_ns() const;
  ClockReading read() const;

 private:
  ClockReader() = default;
  const ClockPage* page_ = nullptr;
};

}  // namespace emu
