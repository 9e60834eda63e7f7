// The load of the engine benchmark: Poisson packets of 40 flits to uniform other nodes, 80:20
// real-time to best effort, handed in and drained in batches of cycles as fabricd does it.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "emu/base/prng.h"
#include "fabric/router/network.h"

namespace bench {

double median(std::vector<double> values);

struct Case {
  std::string name;  // shape/scheduler/load
  fabric::NetworkSpec spec;
  double load;  // of each HCA's link
  // Of the cycles that small networks are measured for, these have one in so many; the plain model
  // and valgrind would take minutes.
  unsigned scale = 1;
  // Instructions by valgrind; the general engine's would take too long and are not held.
  bool counted = true;
};
std::vector<Case> all_cases();
// For the plots: one router at many loads, and more and more routers at one.
std::vector<Case> sweep_cases();
// 512 nodes that send nothing.
fabric::NetworkSpec idle_spec();

// The packets of one class.
struct Share {
  unsigned first_lane;
  unsigned lanes;
  emu::TrafficClass traffic_class;
  emu::Vtick vtick;
};

// Sources of one case; `submit` takes (node, packet).
class Workload {
 public:
  Workload(const Case& which, int nodes, std::uint64_t seed);

  // Hands in everything that launches before `end`.
  template <class Submit>
  void feed(emu::Cycle end, Submit&& submit) {
    for (std::size_t n = 0; n < next_.size(); ++n) {
      while (next_[n] < static_cast<double>(end)) {
        submit(static_cast<emu::NodeId>(n), packet(static_cast<emu::NodeId>(n)));
        next_[n] += random_.exponential(gap_);
      }
    }
  }

 private:
  hca::SendPacket packet(emu::NodeId src);

  emu::Prng random_;
  double gap_;                   // mean cycles between packets of a node
  std::array<Share, 2> shares_;  // best effort, real time
  std::vector<double> next_;
};

inline constexpr std::uint16_t kPacketFlits = 40;
// Cycles that are handed in and stepped at once.
inline constexpr emu::Cycle kBatch = 256;

}  // namespace bench
