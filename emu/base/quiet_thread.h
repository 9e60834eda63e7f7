// A thread that takes no signals: they are the threads' that the program began with.
#pragma once

#include <signal.h>

#include <thread>
#include <utility>

namespace emu {

// Throws std::system_error where none is to be had, as std::thread does.
template <class Work>
std::thread quiet_thread(Work&& work) {
  struct Masked {
    Masked() {
      sigset_t all;
      sigfillset(&all);
      pthread_sigmask(SIG_SETMASK, &all, &before);
    }
    ~Masked() { pthread_sigmask(SIG_SETMASK, &before, nullptr); }
    sigset_t before;
  };
  const Masked masked;
  return std::thread(std::forward<Work>(work));
}

}  // namespace emu
