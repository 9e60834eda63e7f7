// Congestion detection at the routers of the VCT paper (3.1, 3.2, 4, 5): more than two occupied
// buffers in a lane; to blame is the most frequent source among the headers that are buffered there
// and the last few that the router has routed. In: heads as the engine sees them. Out: notices for
// sources; who carries them, and how long that takes, is the caller's business.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "emu/wire/notice.h"
#include "fabric/router/head_watcher.h"

namespace fabric {

struct DetectOptions {
  // 1: looked at every `period_routings` routings, told again while it lasts (section 4.1). 2:
  // looked at with each message that comes; one notice when it begins, or when another source is to
  // blame, and relief when it ends (section 5).
  int approach = 1;
  std::uint32_t threshold = 2;  // occupied buffers of a lane that are no congestion yet
  std::uint32_t period_routings = 16;
  std::uint32_t history = 4;       // headers remembered beside those that are buffered: 0 ... 64
  std::uint32_t lane_buffers = 8;  // messages that a lane can hold at most
};
inline constexpr std::uint32_t kHistoryMax = 64;

class Detector final : public HeadWatcher {
 public:
  // `ports_of_router[i]`: ports of router i.
  Detector(std::span<const int> ports_of_router, const DetectOptions& options);

  void came(const HeadAt& head) override;
  void routed(const HeadAt& head, emu::PortId out_port) override;
  void left(emu::RouterId router, emu::PortId in_port, emu::Vl lane, emu::PortId out_port) override;

  // Since the last clear(), in the order of detection.
  std::span<const emu::Notice> notices() const { return notices_; }
  void clear() { notices_.clear(); }
  // Messages in the buffers of a lane.
  std::size_t occupied(emu::RouterId router, emu::PortId in_port, emu::Vl lane) const;

 private:
  struct Buffered {
    std::uint32_t handle;  // the source's name for it
    emu::NodeId source;
  };
  struct Lane {
    std::vector<Buffered> buffered;  // the oldest first
    bool oldest_routed = false;      // and so it is the next that leaves
    emu::NodeId blamed = kNobody;    // approach 2
  };
  struct Router {
    std::size_t first_lane = 0;  // of its ports' lanes, in lanes_
    std::size_t lanes = 0;
    std::vector<emu::NodeId> history;  // a ring
    std::uint64_t routings = 0;
  };
  static constexpr emu::NodeId kNobody = 0xffff;

  Lane& lane_at(emu::RouterId router, emu::PortId in_port, emu::Vl lane);
  bool congested(const Lane& lane) const { return lane.buffered.size() > options_.threshold; }
  void gather(const Lane& lane);
  emu::NodeId most_frequent(const Router& router);
  void look_at_all(emu::RouterId router, emu::Cycle cycle);
  void tell(emu::RouterId router, emu::NodeId source, emu::NoticeKind kind, emu::Cycle cycle);

  DetectOptions options_;
  std::vector<Router> routers_;
  std::vector<Lane> lanes_;
  std::vector<emu::NodeId> suspects_;  // scratch
  std::vector<emu::Notice> notices_;
};

}  // namespace fabric
