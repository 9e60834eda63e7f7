#include "fabric/route/lanes.h"

#include <algorithm>
#include <numeric>
#include <vector>

namespace fabric {

namespace {

constexpr unsigned bit(LaneSet set) { return 1U << static_cast<unsigned>(set); }

void share_out(LanePlan& plan, unsigned sets, emu::LaneMask mask) {
  std::vector<emu::Vl> lanes;
  for (emu::Vl v = 0; v < emu::kVlCount; ++v)
    if ((mask >> v) & 1) lanes.push_back(v);
  const bool adaptive = (sets & bit(LaneSet::adaptive)) != 0;
  const std::size_t escapes = (sets & bit(LaneSet::second)) != 0 ? 2 : 1;
  // Of the first set, of the second, and where the adaptive lanes begin.
  std::size_t first = (lanes.size() + escapes - 1) / escapes;
  std::size_t both = lanes.size();
  if (adaptive) {
    first = 1;
    both = std::min(escapes, lanes.size());
  }
  const auto fill = [&](LaneSet set, std::size_t begin, std::size_t end) {
    for (std::size_t i = 0; i < lanes.size(); ++i)
      plan.lane[static_cast<std::size_t>(set)][lanes[i]] = lanes[begin + i % (end - begin)];
  };
  if (lanes.empty()) return;
  fill(LaneSet::first, 0, first);
  fill(LaneSet::second, both > first ? first : 0, both > first ? both : first);
  fill(LaneSet::recovery, 0, first);
  if (!adaptive || both == lanes.size()) return;
  fill(LaneSet::adaptive, both, lanes.size());
  plan.may_adapt = static_cast<emu::LaneMask>(plan.may_adapt | mask);
  emu::LaneMask all = 0;
  for (std::size_t i = both; i < lanes.size(); ++i)
    all = static_cast<emu::LaneMask>(all | 1U << lanes[i]);
  for (const emu::Vl lane : lanes) plan.adaptive[lane] = all;
}

}  // namespace

LanePlan make_lane_plan(unsigned sets,
                        const std::array<emu::LaneMask, emu::kClassCount>& lanes_of_class) {
  LanePlan plan;
  for (auto& lane : plan.lane) std::iota(lane.begin(), lane.end(), emu::Vl{0});
  emu::LaneMask others = 0xffff;  // of no class: nothing should use them
  for (const emu::LaneMask lanes : lanes_of_class) {
    share_out(plan, sets, lanes);
    others = static_cast<emu::LaneMask>(others & ~lanes);
  }
  share_out(plan, sets, others);
  return plan;
}

}  // namespace fabric
