// Lane sets: parts of the lanes of every traffic class that routing uses for different things. A
// message keeps its class; on each link it takes the lane that stands for its own in the set of
// that hop.
#pragma once

#include <array>
#include <cstdint>

#include "emu/base/units.h"
#include "emu/lane/policy.h"

namespace fabric {

enum class LaneSet : std::uint8_t {
  any,       // the message's own lane
  first,     // escape lanes; on a ring those before the dateline
  second,    // on a ring those behind the dateline
  adaptive,  // taken only when free, and with room for the message behind it
  recovery,  // of the one message in the network that is being recovered
};
inline constexpr int kLaneSetCount = 5;

struct LanePlan {
  // [set][lane of the message]
  std::array<std::array<emu::Vl, emu::kVlCount>, kLaneSetCount> lane{};
  emu::LaneMask may_adapt = 0;  // lanes of classes that have adaptive lanes
  // [lane of the message] all adaptive lanes of its class.
  std::array<emu::LaneMask, emu::kVlCount> adaptive{};

  emu::Vl at(LaneSet set, emu::Vl own) const { return lane[static_cast<std::size_t>(set)][own]; }
};

// `sets`: bit mask of the LaneSets in use. With adaptive lanes the escape sets, or recovery, get
// one lane each of every class, else they share its lanes evenly. A class with too few lanes uses
// one twice: the check for deadlocks finds out whether that does harm.
LanePlan make_lane_plan(unsigned sets,
                        const std::array<emu::LaneMask, emu::kClassCount>& lanes_of_class);

}  // namespace fabric
