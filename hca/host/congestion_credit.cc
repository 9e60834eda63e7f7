// Credit-based congestion control (ACP section 4.2): a CQE is a credit. C_b packets may be handed
// on and not yet injected; an injection gives one back. With several completion queues (4.3) each
// has its equal part of the credits, and waits for itself only.
#include <algorithm>

#include "hca/host/congestion.h"

namespace hca {

namespace {

class Credit final : public CongestionControl {
 public:
  explicit Credit(const CongestionOptions& options) : options_(options) {
    const auto destinations = static_cast<std::uint32_t>(options.quadrant_of.size());
    const std::uint32_t queues = options.layout == CqLayout::separate ? std::max(destinations, 1U)
                                 : options.layout == CqLayout::quad   ? options.quadrants
                                                                      : 1U;
    out_.resize(queues);
    each_ = std::max(options.credits / queues, 1U);
  }
  bool may_send(emu::NodeId dest, emu::Cycle) override { return out_[group(dest)] < each_; }
  bool blocked(emu::Cycle) override {
    return std::ranges::all_of(out_, [this](std::uint32_t out) { return out >= each_; });
  }
  std::uint16_t handed_on(emu::NodeId dest, std::uint16_t, emu::Cycle) override {
    const std::uint16_t queue = group(dest);
    ++out_[queue];
    return queue;
  }
  void came_back(std::uint16_t queue, emu::Cycle) override {
    if (queue < out_.size() && out_[queue] > 0) --out_[queue];
  }
  std::uint16_t group(emu::NodeId dest) const override {
    if (options_.layout == CqLayout::global || dest >= options_.quadrant_of.size()) return 0;
    return options_.layout == CqLayout::separate ? dest : options_.quadrant_of[dest];
  }
  std::uint16_t groups() const override { return static_cast<std::uint16_t>(out_.size()); }
  void restart() override { std::ranges::fill(out_, 0); }

 private:
  CongestionOptions options_;
  std::vector<std::uint32_t> out_;  // by completion queue: handed on and not yet injected
  std::uint32_t each_ = 1;
};

}  // namespace

std::unique_ptr<CongestionControl> make_credit(const CongestionOptions& options) {
  return std::make_unique<Credit>(options);
}

}  // namespace hca
