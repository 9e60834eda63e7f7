// ALO, "at least one" (Baydal, Lopez, Duato, IPDPS 2000; ACP's reference 16): a message may be
// injected if every useful output port of the own router has a free lane, or some useful one has
// all its lanes free. Useful: on a shortest way to the destination.
#include <bit>

#include "hca/host/congestion.h"

namespace hca {

namespace {

class Alo final : public CongestionControl {
 public:
  explicit Alo(const CongestionOptions& options) : useful_(options.useful_ports) {}

  bool may_send(emu::NodeId dest, emu::Cycle) override {
    if (dest >= useful_.size() || free_.empty()) return true;
    bool every = true;
    for (PortMask ports = useful_[dest]; ports != 0; ports &= ports - 1) {
      const auto port = static_cast<std::size_t>(std::countr_zero(ports));
      const unsigned lanes = port < free_.size() ? free_[port] : lanes_;
      if (lanes == lanes_) return true;
      every &= lanes != 0;
    }
    return every;
  }
  // Between two looks at the router each message takes a lane of the ways that it may go: what was
  // free is so once.
  std::uint16_t handed_on(emu::NodeId dest, std::uint16_t, emu::Cycle) override {
    if (dest >= useful_.size()) return 0;
    for (PortMask ports = useful_[dest]; ports != 0; ports &= ports - 1) {
      const auto port = static_cast<std::size_t>(std::countr_zero(ports));
      if (port < free_.size())
        free_[port] = static_cast<std::uint16_t>(free_[port] & (free_[port] - 1));
    }
    return 0;
  }
  emu::Cycle ready_at() const override { return 0; }  // whenever the routers look otherwise
  Signal needs() const override { return Signal::state; }
  void fabric_state(const FabricState& state, emu::Cycle) override {
    free_.assign(state.free_lanes.begin(), state.free_lanes.end());
    lanes_ = state.lanes;
    for (auto& lanes : free_) lanes = static_cast<std::uint16_t>(lanes & lanes_);
  }

 private:
  std::vector<PortMask> useful_;
  std::vector<std::uint16_t> free_;
  std::uint16_t lanes_ = 0;
};

}  // namespace

std::unique_ptr<CongestionControl> make_alo(const CongestionOptions& options) {
  return std::make_unique<Alo>(options);
}

}  // namespace hca
