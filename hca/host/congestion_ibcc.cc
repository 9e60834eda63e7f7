// InfiniBand's own congestion control (IBA A10.2) at the source: routers mark packets (FECN), their
// destination answers with a BECN, and each BECN moves the source one entry further into the
// congestion control table for that destination; CCTI_Timer moves it back, one entry at a time. An
// entry is the delay between two packets in units of a packet's own length: entry i is i here.
#include <algorithm>

#include "hca/host/congestion.h"

namespace hca {

namespace {

constexpr std::uint32_t kCctiIncrease = 1;
constexpr std::uint32_t kCctiLimit = 127;        // of a table of 128 entries
constexpr emu::EmuNs kCctiTimerNs = 150 * 1024;  // CCTI_Timer 150, in units of 1.024 us

class InfinibandControl final : public CongestionControl {
 public:
  explicit InfinibandControl(const CongestionOptions& options)
      : timer_cycles_(std::max<emu::Cycle>(1, options.time.cycle_at(kCctiTimerNs))),
        flows_(std::max<std::size_t>(1, options.quadrant_of.size())) {}

  bool may_send(emu::NodeId dest, emu::Cycle now) override {
    return dest >= flows_.size() || now >= flows_[dest].next;
  }
  emu::Cycle ready_at() const override { return std::ranges::min(flows_, {}, &Flow::next).next; }
  std::uint16_t handed_on(emu::NodeId dest, std::uint16_t flits, emu::Cycle now) override {
    if (dest >= flows_.size()) return 0;
    Flow& flow = flows_[dest];
    settle(flow, now);
    if (flow.ccti > 0) flow.next = std::max(flow.next, now) + emu::Cycle{flits} * (1 + flow.ccti);
    return dest;
  }
  void notice(emu::NoticeKind, emu::NodeId dest, emu::Cycle now) override {
    if (dest >= flows_.size()) return;
    Flow& flow = flows_[dest];
    settle(flow, now);
    if (flow.ccti == 0) flow.timer = now;
    flow.ccti = std::min(flow.ccti + kCctiIncrease, kCctiLimit);
  }
  std::uint16_t group(emu::NodeId dest) const override {
    return dest < flows_.size() ? dest : std::uint16_t{0};
  }
  std::uint16_t groups() const override { return static_cast<std::uint16_t>(flows_.size()); }
  Signal needs() const override { return Signal::marks; }
  // The longest of all destinations, for a packet of 40 flits.
  emu::Cycle delay_cycles() const override {
    return 40 * emu::Cycle{std::ranges::max(flows_, {}, &Flow::ccti).ccti};
  }

 private:
  struct Flow {
    std::uint32_t ccti = 0;  // into the table
    emu::Cycle timer = 0;    // it was last moved back then, or began
    emu::Cycle next = 0;     // before it the next packet may not leave
  };
  void settle(Flow& flow, emu::Cycle now) const {
    while (flow.ccti > 0 && now >= flow.timer + timer_cycles_) {
      --flow.ccti;
      flow.timer += timer_cycles_;
    }
  }
  emu::Cycle timer_cycles_;
  std::vector<Flow> flows_;  // by destination
};

}  // namespace

std::unique_ptr<CongestionControl> make_ibcc(const CongestionOptions& options) {
  return std::make_unique<InfinibandControl>(options);
}

}  // namespace hca
