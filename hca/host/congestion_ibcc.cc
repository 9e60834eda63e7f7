// InfiniBand's own congestion control (IBA A10.2) at the source: routers mark packets (FECN), their
// destination answers with a BECN, and each BECN moves the source one entry further into the
// congestion control table for that destination; CCTI_Timer moves it back, one entry at a time. An
// entry is the delay between two packets in units of a packet's own length: entry i is i here.
#include <algorithm>

#include "hca/host/paced.h"

namespace hca {

namespace {

struct IbccFlow {
  std::uint32_t ccti = 0;  // into the table
  emu::Cycle timer = 0;    // it was last moved back then, or began
  emu::Cycle next = 0;     // before it the next packet may not leave
};

class InfinibandControl final : public PacedByDestination<IbccFlow> {
 public:
  explicit InfinibandControl(const CongestionOptions& options)
      : PacedByDestination(options),
        increase_(options.reaction.ccti_increase),
        limit_(options.reaction.ccti_limit),
        timer_cycles_(
            std::max<emu::Cycle>(1, options.time.cycle_at(options.reaction.ccti_timer_ns))) {}

  std::uint16_t handed_on(emu::NodeId dest, std::uint16_t flits, emu::Cycle now) override {
    if (dest >= flows_.size()) return 0;
    IbccFlow& flow = flows_[dest];
    settle(flow, now);
    if (flow.ccti > 0) flow.next = std::max(flow.next, now) + emu::Cycle{flits} * (1 + flow.ccti);
    return dest;
  }
  void notice(emu::NoticeKind, emu::NodeId dest, emu::Cycle now) override {
    if (dest >= flows_.size()) return;
    IbccFlow& flow = flows_[dest];
    settle(flow, now);
    if (flow.ccti == 0) flow.timer = now;
    flow.ccti = std::min(flow.ccti + increase_, limit_);
  }
  // The longest of all destinations, for a packet of 40 flits.
  emu::Cycle delay_cycles(emu::Cycle now) override {
    for (IbccFlow& flow : flows_) settle(flow, now);
    return 40 * emu::Cycle{std::ranges::max(flows_, {}, &IbccFlow::ccti).ccti};
  }

 private:
  void settle(IbccFlow& flow, emu::Cycle now) const {
    while (flow.ccti > 0 && now >= flow.timer + timer_cycles_) {
      --flow.ccti;
      flow.timer += timer_cycles_;
    }
  }
  std::uint32_t increase_;
  std::uint32_t limit_;
  emu::Cycle timer_cycles_;
};

}  // namespace

std::unique_ptr<CongestionControl> make_ibcc(const CongestionOptions& options) {
  return std::make_unique<InfinibandControl>(options);
}

}  // namespace hca
