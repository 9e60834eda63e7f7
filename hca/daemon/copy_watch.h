// A copy from or to a program's memory that does not come back. The kernel waits for the program's
// pages in it: for a file system that does not answer, or for the program itself (userfaultfd).
// Hardware has all pages before the first request; here one program would hold up all others of the
// node. Whose page does not come within moments is killed, as by a power failure; if that does not
// help, the node ends rather than stand still. What another node of this process has lent
// (emu/wire/lending.h) and does not come is taken for the program's that it is copied to. Called by
// memory.h around every such copy, by the thread that made the watch.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>

namespace hca {

class CopyWatch {
 public:
  CopyWatch();
  ~CopyWatch();
  CopyWatch(const CopyWatch&) = delete;
  CopyWatch& operator=(const CopyWatch&) = delete;

  void begin(pid_t pid) {
    // Who reads this pid sees that the call before is over.
    pid_.store(pid, std::memory_order_release);
    call_.store(++calls_, std::memory_order_release);
  }
  // Whether the program was killed meanwhile.
  bool end() {
    call_.store(0, std::memory_order_release);
    return killed_.load(std::memory_order_acquire) == calls_;
  }

 private:
  void run();
  bool blocked() const;  // our thread waits in the kernel

  std::string stat_;  // of the thread that copies, below /proc
  std::uint64_t calls_ = 0;
  std::atomic<pid_t> pid_{0};
  std::atomic<std::uint64_t> call_{0};    // under way; 0: none
  std::atomic<std::uint64_t> killed_{0};  // the call for which a program was
  std::mutex lock_;
  std::condition_variable over_;
  bool ends_ = false;
  std::thread thread_;
};

}  // namespace hca
