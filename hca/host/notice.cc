// What routers tell sources (emu/wire/notice.h): acted on here, or passed on to the source as a
// management datagram where notices travel through the network. Its class is InfiniBand's for
// congestion control (IBA A10.4), its contents are ours.
#include "hca/host/state.h"

namespace hca {

namespace {

constexpr std::uint8_t kCongestionClass = 0x21;
constexpr std::size_t kKindAt = 64;  // behind the class's header
constexpr std::size_t kAboutAt = 65;

Mad to_mad(emu::NoticeKind kind, bool about_any) {
  Mad mad{};
  mad[0] = kMadBaseVersion;
  mad[1] = kCongestionClass;
  mad[2] = kMadClassVersion;
  mad[3] = kMadSend;
  mad[kKindAt] = static_cast<std::uint8_t>(kind);
  mad[kAboutAt] = about_any ? 1 : 0;
  return mad;
}

}  // namespace

void hear_notice(HostState& s, const emu::Notice& notice) {
  if (notice.source == s.options_.node) {
    s.congestion_->notice(notice.kind, notice.dest, s.now_);
    return;
  }
  // The last word counts. Congestion that finds the ring full is told again, its end is not.
  std::erase(s.mads_.reliefs, notice.source);
  const bool queued =
      queue_mad(s, notice.source, to_mad(notice.kind, notice.dest == emu::kAnyDest));
  if (!queued && notice.kind == emu::NoticeKind::relief && notice.source < s.options_.nodes)
    s.mads_.reliefs.push_back(notice.source);
}

// Only routers relieve, of all that a source sends.
void queue_owed_reliefs(HostState& s) {
  std::vector<emu::NodeId>& owed = s.mads_.reliefs;
  const Mad relief = to_mad(emu::NoticeKind::relief, true);
  while (!owed.empty() && queue_mad(s, owed.front(), relief)) owed.erase(owed.begin());
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
