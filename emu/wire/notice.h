// What the fabric tells a source of its traffic: the words of the congestion schemes that detect at
// the routers. Made by fabric/router/detect.h, acted on by hca/host/congestion_*.cc.
#pragma once

#include <cstdint>

#include "emu/base/units.h"

namespace emu {

enum class NoticeKind : std::uint8_t {
  congestion,  // this source is to blame (VCT paper 3.3), or its packets were marked (BECN, CNP)
  relief,      // no longer: the paper's "non-congestion" message
};

inline constexpr NodeId kAnyDest = 0xffff;

struct Notice {
  Cycle cycle;      // of the detection
  RouterId router;  // that detected it; of marks: the destination's
  NodeId source;    // whom it is for
  NodeId dest;      // of the packets that it is about; of any: kAnyDest
  NoticeKind kind;
};

}  // namespace emu
