// ALO, "at least one" (Baydal, Lopez, Duato, IPDPS 2000; ACP's reference 16): a message may be
// injected if every useful output port of the own router has a free lane, or some useful one has
// all its lanes free. Useful: on a shortest way to the destination.
#include <algorithm>
#include <bit>
#include <deque>

#include "hca/host/congestion.h"

namespace hca {

namespace {

class Alo final : public CongestionControl {
 public:
  explicit Alo(const CongestionOptions& options) : useful_(options.useful_ports) {}

  bool may_send(emu::NodeId dest, emu::Cycle now) override {
    if (dest >= useful_.size() || ports_.empty()) return true;
    give_back(now);
    bool every = true;
    for (PortMask ports = useful_[dest]; ports != 0; ports &= ports - 1) {
      const auto port = static_cast<std::size_t>(std::countr_zero(ports));
      const unsigned free = port < ports_.size() ? ports_[port].free() : lanes_;
      if (free == lanes_) return true;
      every &= free != 0;
    }
    return every;
  }
  // Between two looks at the router each message takes a lane of the ways that it may go, and keeps
  // it for as long as this HCA's link needs for it and those before it. A host that is busy looks
  // rarely: were lanes taken for good, it could send no more than the first look showed free.
  std::uint16_t handed_on(emu::NodeId dest, std::uint16_t flits, emu::Cycle now) override {
    if (dest >= useful_.size()) return 0;
    give_back(now);
    link_free_ = std::max(link_free_, now) + flits;
    taken_.push_back({link_free_, useful_[dest]});
    count(useful_[dest], 1);
    return 0;
  }
  emu::Cycle ready_at() const override { return 0; }  // whenever the routers look otherwise
  Signal needs() const override { return Signal::state; }
  void fabric_state(const FabricState& state, emu::Cycle) override {
    taken_.clear();
    lanes_ = static_cast<unsigned>(std::popcount(state.lanes));
    ports_.clear();
    for (const std::uint16_t free : state.free_lanes) {
      const auto lanes = static_cast<std::uint16_t>(free & state.lanes);
      ports_.push_back({.seen = static_cast<unsigned>(std::popcount(lanes))});
    }
  }

 private:
  struct Port {
    unsigned seen = 0;   // lanes that were free at the last look
    unsigned taken = 0;  // by messages since then
    unsigned free() const { return seen > taken ? seen - taken : 0; }
  };
  struct Taken {
    emu::Cycle until;
    PortMask ports;
  };

  void give_back(emu::Cycle now) {
    for (; !taken_.empty() && taken_.front().until <= now; taken_.pop_front())
      count(taken_.front().ports, -1);
  }
  void count(PortMask ports, int by) {
    for (; ports != 0; ports &= ports - 1) {
      const auto port = static_cast<std::size_t>(std::countr_zero(ports));
      if (port < ports_.size()) ports_[port].taken += static_cast<unsigned>(by);
    }
  }

  std::vector<PortMask> useful_;
  std::vector<Port> ports_;
  std::deque<Taken> taken_;  // since the last look, in their order
  emu::Cycle link_free_ = 0;
  unsigned lanes_ = 0;
};

}  // namespace

std::unique_ptr<CongestionControl> make_alo(const CongestionOptions& options) {
  return std::make_unique<Alo>(options);
}

}  // namespace hca
