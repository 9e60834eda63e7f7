// What routers tell sources (emu/wire/notice.h): acted on here, or passed on to the source as a
// management datagram where notices travel through the network. Its class is InfiniBand's for
// congestion control (IBA A10.4), its contents are ours.
#include "hca/host/state.h"

namespace hca {

namespace {

constexpr std::uint8_t kCongestionClass = 0x21;
constexpr std::size_t kKindAt = 64;  // behind the class's header
constexpr std::size_t kAboutAt = 65;

Mad to_mad(const emu::Notice& notice) {
  Mad mad{};
  mad[0] = kMadBaseVersion;
  mad[1] = kCongestionClass;
  mad[2] = kMadClassVersion;
  mad[3] = kMadSend;
  mad[kKindAt] = static_cast<std::uint8_t>(notice.kind);
  mad[kAboutAt] = notice.dest == emu::kAnyDest ? 1 : 0;
  return mad;
}

}  // namespace

void hear_notice(HostState& s, const emu::Notice& notice) {
  if (notice.source == s.options_.node) {
    s.congestion_->notice(notice.kind, notice.dest, s.now_);
  } else {
    (void)queue_mad(s, notice.source, to_mad(notice));  // too many wait: it will be told again
  }
}

// Notices about packets come from their destination: who sends one is whom it is about.
bool take_notice(HostState& s, emu::NodeId from, const Mad& mad) {
  if (mad[1] != kCongestionClass) return false;
  if (mad[kKindAt] > static_cast<std::uint8_t>(emu::NoticeKind::relief)) return true;
  s.congestion_->notice(static_cast<emu::NoticeKind>(mad[kKindAt]),
                        mad[kAboutAt] != 0 ? emu::kAnyDest : from, s.now_);
  return true;
}

}  // namespace hca
