// Routers that see congestion, and what they tell its sources. They detect it and blame somebody
// (VCT, fabric/router/detect.h), or mark packets whose destination tells the source
// (fabric/router/mark.h). In: what the network's heads do, deliveries. Out: notices; whether they
// are known at once or travel as messages is the caller's business. The same in the loop of fabricd
// and in virtual time (tools/sim).
#pragma once

#include <memory>
#include <span>
#include <unordered_set>
#include <vector>

#include "emu/base/result.h"
#include "emu/config/config.h"
#include "fabric/router/detect.h"
#include "fabric/router/mark.h"
#include "fabric/router/network.h"

namespace fabric {

class Notices {
 public:
  static constexpr emu::NodeId kNoSender = 0xffff;

  // Whether routers have to tell sources for this scheme, because they blame them or because they
  // mark packets.
  static bool wanted(emu::Congestion scheme) { return blames(scheme) || marks(scheme); }
  static bool blames(emu::Congestion scheme) {
    return scheme == emu::Congestion::vct1 || scheme == emu::Congestion::vct2;
  }
  static bool marks(emu::Congestion scheme) {
    return scheme == emu::Congestion::ibcc || scheme == emu::Congestion::dcqcn;
  }

  // Fails where the routers of this network see nothing of the kind. The network tells it of heads
  // from now on, until it is destroyed; messages that are in routers already are not counted,
  // neither now nor when they leave.
  static emu::Result<std::unique_ptr<Notices>> make(const emu::Config& config,
                                                    emu::Congestion scheme, Network& network);
  // The same, for a scheme that may want none (null), and as the configuration has notices go:
  // fails, too, where they are messages and a router has no node that could send.
  static emu::Result<std::unique_ptr<Notices>> make_wanted(const emu::Config& config,
                                                           emu::Congestion scheme,
                                                           Network& network);
  ~Notices();
  Notices(const Notices&) = delete;
  Notices& operator=(const Notices&) = delete;

  // The network tells this one from now on: done by make(), again after another one has ended.
  bool listen();
  // Takes over what routers saw since the last call.
  void look();
  // A packet of that handle was delivered in cycle `now`.
  void arrived(std::uint32_t handle, emu::NodeId source, emu::NodeId dest, emu::Cycle now);

  // Since heard() was called.
  std::span<const emu::Notice> news() const { return news_; }
  void heard();
  // The HCA that says it where notices are messages: of marks the destination; a router has no port
  // of its own, its first HCA sends for it. kNoSender: it has none.
  emu::NodeId sender_of(const emu::Notice& notice) const {
    return notice.dest == emu::kAnyDest ? sender_[notice.router] : notice.dest;
  }
  bool all_have_senders() const;  // none is ever without

  struct Counts {
    std::uint64_t congestion = 0;
    std::uint64_t relief = 0;
    std::uint64_t marked = 0;
  };
  const Counts& counts() const { return counts_; }
  // From those of who watched before: the counters of a process do not fall.
  void count_on_from(const Counts& before) { counts_ = before; }
  std::uint64_t congestion() const { return counts_.congestion; }
  std::uint64_t relief() const { return counts_.relief; }
  std::uint64_t marked() const { return counts_.marked; }

 private:
  explicit Notices(Network& network) : network_(network) {}
  bool may_tell(emu::NodeId source, emu::NodeId dest, emu::Cycle now);

  Network& network_;
  std::unique_ptr<Detector> detector_;  // one of the two
  std::unique_ptr<Marker> marker_;
  std::vector<emu::Notice> news_;
  std::unordered_set<std::uint32_t> marked_;  // handles of packets under way
  std::vector<emu::NodeId> sender_;           // by router
  std::vector<emu::RouterId> router_of_;      // by node
  emu::Cycle rest_cycles_ = 0;                // between two notices about one flow
  std::vector<emu::Cycle> told_at_;  // by source and destination: the next may be told then
  Counts counts_;
};

}  // namespace fabric
