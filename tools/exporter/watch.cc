#include "tools/exporter/watch.h"

#include <sys/inotify.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstring>

namespace tools {

PageWatch::PageWatch(const std::string& run_dir)
    : dir_(run_dir + "/metrics"), fd_(::inotify_init1(IN_NONBLOCK | IN_CLOEXEC)) {}

// A page gets its name when it is complete (emu/metrics/page.cc), so nothing is said of its making.
bool PageWatch::begin() {
  if (!fd_) return false;
  watching_ = ::inotify_add_watch(fd_.get(), dir_.c_str(), IN_MOVED_TO | IN_DELETE) >= 0;
  return watching_;
}

bool PageWatch::take_events() {
  alignas(inotify_event) std::array<char, 4096> events;
  bool any = false;
  for (;;) {
    const ssize_t got = ::read(fd_.get(), events.data(), events.size());
    if (got <= 0) return any;
    any = true;
    inotify_event event;
    for (std::size_t at = 0; at < static_cast<std::size_t>(got); at += sizeof event + event.len) {
      std::memcpy(&event, &events[at], sizeof event);
      if ((event.mask & IN_IGNORED) != 0) watching_ = false;  // the folder itself has gone
    }
  }
}

bool PageWatch::changed() {
  const bool any = fd_ && take_events();
  return (!watching_ && begin()) || any;
}

}  // namespace tools
