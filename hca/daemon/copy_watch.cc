#include "hca/daemon/copy_watch.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstring>

#include "emu/base/exit_code.h"
#include "emu/base/log.h"
#include "emu/base/quiet_thread.h"
#include "emu/ring/fd.h"

namespace hca {

namespace {
// A copy of 64 packets takes some 10 us, a page from a disk milliseconds.
constexpr std::chrono::milliseconds kLook{200};
constexpr int kLooksKill = 5;  // a second
constexpr int kLooksEnd = 15;
}  // namespace

CopyWatch::CopyWatch()
    : stat_("/proc/self/task/" + std::to_string(::gettid()) + "/stat"),
      thread_(emu::quiet_thread([this] { run(); })) {}

CopyWatch::~CopyWatch() {
  {
    const std::lock_guard lock(lock_);
    ends_ = true;
  }
  over_.notify_one();
  thread_.join();
}

void CopyWatch::run() {
  std::uint64_t seen = 0;
  int looks = 0;
  std::unique_lock lock(lock_);
  while (!over_.wait_for(lock, kLook, [this] { return ends_; })) {
    const std::uint64_t call = call_.load(std::memory_order_acquire);
    // One that waits for a processor is slow for other reasons.
    looks = call != 0 && call == seen && blocked() ? looks + 1 : 0;
    seen = call;
    if (looks == kLooksKill) {
      const pid_t pid = pid_.load(std::memory_order_acquire);
      if (call_.load(std::memory_order_relaxed) != call) continue;  // and the pid may be another's
      killed_.store(call, std::memory_order_release);
      (void)::kill(pid, SIGKILL);
    } else if (looks == kLooksEnd) {
      emu::log_error("a program's memory does not come, and holds up all others: the node ends");
      ::_exit(emu::kExitFailed);
    }
  }
}

bool CopyWatch::blocked() const {
  const emu::UniqueFd file(::open(stat_.c_str(), O_RDONLY | O_CLOEXEC));
  std::array<char, 256> text{};
  if (!file || ::read(file.get(), text.data(), text.size() - 1) <= 0) return false;
  // "tid (name) state ...": the name is ours and has no brackets.
  const char* behind = std::strchr(text.data(), ')');
  return behind != nullptr && behind[1] == ' ' && behind[2] == 'D';
}

}  // namespace hca
