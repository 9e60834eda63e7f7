// Polling threads leave the core of the process that works for them (NodePage::works_on).
#include "hca/verbs/aside.h"

#include <sched.h>
#include <unistd.h>

#include <cstring>

namespace hca {

Exchange& exchange() {
  static thread_local Exchange mine;
  return mine;
}

int step_aside(int cpu) {
  cpu_set_t before;
  if (::sched_getaffinity(0, sizeof before, &before) != 0) return -1;  // more CPUs than it holds
  if (!CPU_ISSET(static_cast<unsigned>(cpu), &before) || CPU_COUNT(&before) < 2) return -1;
  cpu_set_t others = before;
  CPU_CLR(static_cast<unsigned>(cpu), &others);
  if (::sched_setaffinity(0, sizeof others, &others) != 0) return -1;
  const int there = ::sched_getcpu();
  // Who was free to run anywhere stays so when CPUs are added to the cpuset: a mask that names
  // those of today would bind it to them.
  if (CPU_COUNT(&before) == ::sysconf(_SC_NPROCESSORS_ONLN))
    std::memset(&before, 0xff, sizeof before);
  (void)::sched_setaffinity(0, sizeof before, &before);
  return there;
}

}  // namespace hca
