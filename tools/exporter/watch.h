// When pages of a run directory come and go: a program may live for less than the time between two
// looks, and what it counts is had only of a page that was opened while it had its name.
#pragma once

#include <string>

#include "emu/metrics/read.h"

namespace tools {

class PageWatch {
 public:
  explicit PageWatch(const std::string& run_dir);
  // Readable once a page has come or gone; -1 where the host has no inotify to spare.
  int fd() const { return fd_.get(); }
  // Whether one has since it was last asked; also when it begins to watch, for pages may be there.
  // Never waits.
  bool changed();

 private:
  bool begin();
  bool take_events();

  std::string dir_;
  emu::UniqueFd fd_;
  bool watching_ = false;  // the folder of the pages is made by the first program that has one
};

}  // namespace tools
