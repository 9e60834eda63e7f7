#include "hca/host/congestion.h"

#include <algorithm>

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

std::span<const CongestionScheme> congestion_schemes() { return kSchemes; }

std::unique_ptr<CongestionControl> make_congestion(std::string_view name,
                                                   const CongestionOptions& options) {
  const auto found = std::ranges::find(kSchemes, name, &CongestionScheme::name);
  return found == std::end(kSchemes) ? nullptr : found->make(options);
}

}  // namespace hca
