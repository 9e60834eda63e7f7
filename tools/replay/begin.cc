#include "tools/replay/begin.h"

#include <fstream>
#include <utility>

namespace tools {

Begin::Begin(std::string folder, std::string name)
    : folder_(std::move(folder)), name_(std::move(name)) {
  if (folder_.empty()) at_ = 0;
}

std::optional<emu::EmuNs> Begin::when(bool ready) {
  if (at_ || !ready) return at_;
  if (!said_) {
    said_ = true;
    const std::ofstream mark(folder_ + "/ready-" + name_);
  }
  std::ifstream file(folder_ + "/begin");
  if (emu::EmuNs at = 0; file >> at) at_ = at;
  return at_;
}

}  // namespace tools
