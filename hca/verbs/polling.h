// What both ways to poll share: the little sleep of a thread that finds nothing.
#pragma once

#include <mutex>

#include "hca/verbs/objects.h"

namespace hca {

// True: look again (it slept, or hcad has gone). Call without the CQ's lock.
bool after_empty_poll(Cq& cq);
void after_full_poll(bool received);  // whether the last completion taken is of a receive

// Whether this thread is between start_poll and end_poll, and so has the lock already: programs arm
// there. Only the thread itself could have written its name.
inline bool polled_here(const Cq& cq) {
  return cq.poller.load(std::memory_order_relaxed) == ::pthread_self();
}

// The CQ's lock, where this thread does not have it already.
inline std::unique_lock<std::mutex> lock_unless_polled_here(Cq& cq) {
  std::unique_lock lock(cq.lock, std::defer_lock);
  if (!polled_here(cq)) lock.lock();
  return lock;
}

}  // namespace hca
