// The emulated time at which several programs begin together. Each says that it is ready, by a file
// of its name in a folder; who started them all says when, by the file `begin` (nanoseconds).
#pragma once

#include <optional>
#include <string>

#include "emu/base/units.h"

namespace tools {

class Begin {
 public:
  // No folder: at once, ready or not.
  Begin(std::string folder, std::string name);
  // Asked again and again. None: not yet.
  std::optional<emu::EmuNs> when(bool ready);

 private:
  std::string folder_;
  std::string name_;
  std::optional<emu::EmuNs> at_;
  bool said_ = false;
};

}  // namespace tools
