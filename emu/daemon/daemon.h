// What daemons do all day: turns, one after the other, and rest when nobody has work. A process
// holds one daemon, or all those of a host by one loop (tools/together): who waits for another of
// the same process then waits for no switch of processes. In: the daemons, each told the host's
// time. Called by the main functions of hcad, fabricd and flitnetd.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

#include "emu/base/result.h"

namespace emu {

// How a daemon would go on after a turn; in the order of who has his way where they are several.
enum class Rest : std::uint8_t {
  none,   // there was work: at once
  look,   // something is expected soon: others may have the core for one look
  nap,    // work gathers meanwhile; who comes does not wake us
  sleep,  // until somebody comes
};

struct Turn {
  Rest rest = Rest::none;
  std::uint64_t nap_until_ns = 0;  // host time
  // A program that slept was woken, and perhaps stands in line for this core.
  bool woke = false;
};

class Daemon {
 public:
  Daemon() = default;
  virtual ~Daemon() = default;
  Daemon(const Daemon&) = delete;
  Daemon& operator=(const Daemon&) = delete;

  virtual Turn turn(std::uint64_t host_ns) = 0;
  virtual bool ends() const = 0;  // it was told to, or cannot go on

  // From now on who comes rings. How long it may sleep, in ns; 0: somebody has come meanwhile.
  virtual std::uint64_t fall_asleep(std::uint64_t host_ns) = 0;
  // Behind each fall_asleep(); `rung`: those of wake_fds() that are readable.
  virtual void wake_up(std::span<const int> rung) = 0;
  // Become readable when somebody comes; the same for its life.
  virtual std::vector<int> wake_fds() const = 0;
};

// Until `stop` is set or one of them ends. An error: they cannot be waited for.
Result<void> run(std::span<Daemon* const> daemons, const std::atomic<bool>& stop);

}  // namespace emu
