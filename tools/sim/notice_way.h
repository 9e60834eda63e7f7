// How notices (fabric/daemon/notices.h) get to their sources in virtual time: at once, as the VCT
// paper has it, or as control messages that cross the network on a lane of control, its future
// work. In: a notice. Out: the message that carries it.
#pragma once

#include <array>
#include <optional>

#include "emu/base/result.h"
#include "emu/config/config.h"
#include "fabric/daemon/notices.h"
#include "tools/sim/workload.h"

namespace tools {

class NoticeWay {
 public:
  // Fails where a router that detects has no HCA, or control no lane.
  static emu::Result<NoticeWay> make(const emu::Config& config,
                                     const std::array<emu::LaneMask, emu::kClassCount>& lanes,
                                     const fabric::Notices& notices);
  // None: it is known there at once.
  std::optional<FlitMessage> carrier(const fabric::Notices& notices, const emu::Notice& notice,
                                     emu::Cycle now) const;

 private:
  bool by_message_ = false;
  emu::Vl lane_ = emu::kControlVl;
  std::uint16_t flits_ = 1;
};

}  // namespace tools
