// Where a thread must not end (pthread_cancel) though it calls what is a cancellation point: no
// call of verbs is one, nor may what the C library declares as throwing nothing be unwound.
#pragma once

#include <pthread.h>

namespace hca {

class NotCancelled {
 public:
  NotCancelled() { ::pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before_); }
  ~NotCancelled() { ::pthread_setcancelstate(before_, nullptr); }
  NotCancelled(const NotCancelled&) = delete;
  NotCancelled& operator=(const NotCancelled&) = delete;

 private:
  int before_ = PTHREAD_CANCEL_ENABLE;
};

}  // namespace hca
