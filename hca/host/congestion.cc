#include "hca/host/congestion.h"

#include <algorithm>

#include "hca/host/options.h"

namespace hca {

namespace {

class NoCongestionControl final : public CongestionControl {
 public:
  bool may_send(emu::NodeId, emu::Cycle) override { return true; }
};

// The list: a new scheme is a line here.
constexpr CongestionScheme kSchemes[] = {
    {"none", make_no_congestion_control},
    {"credit", make_credit},
    {"alo", make_alo},
    {"self_tuned", make_self_tuned},
    {"vct1", make_vct1},
    {"vct2", make_vct2},
    {"ibcc", make_ibcc},
    {"dcqcn", make_dcqcn},
};

}  // namespace

std::unique_ptr<CongestionControl> make_no_congestion_control(const CongestionOptions&) {
  return std::make_unique<NoCongestionControl>();
}

CongestionOptions congestion_options(const HostOptions& options) {
  const auto& quadrants = options.quadrant_of;
  return {
      .credits = options.best_effort_credits,
      .layout = options.completion_queues,
      .quadrants = options.quadrants,
      .quadrant_of = {quadrants.begin(), quadrants.begin() + options.nodes},
      .useful_ports = options.useful_ports,
      .reaction = options.congestion_reaction,
      .time = options.cycle_time,
  };
}

std::span<const CongestionScheme> congestion_schemes() { return kSchemes; }

std::unique_ptr<CongestionControl> make_congestion(std::string_view name,
                                                   const CongestionOptions& options) {
  const auto found = std::ranges::find(kSchemes, name, &CongestionScheme::name);
  return found == std::end(kSchemes) ? nullptr : found->make(options);
}

}  // namespace hca
