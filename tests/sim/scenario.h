// What runs on the simulated cluster: which clip goes from where to where, and what else. From a
// plan file (the one that the replayers of a live cluster read), or made here for a load and a mix.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "emu/base/result.h"
#include "emu/config/config.h"
#include "tools/replay/plan.h"
#include "tools/replay/rate.h"
#include "tools/trace/frame.h"

namespace sim {

struct Scenario {
  std::vector<tools::StreamPlan> streams;
  std::vector<tools::Clip> clips;           // with bytes
  std::vector<std::size_t> clip_of_stream;  // index into clips
  std::vector<tools::ClipRate> rates;       // per clip
  std::uint64_t best_effort_bps = 0;        // of each node, on the link
  bool control = true;                      // 10 packets of 10 flits per 33.3 ms and node
  double seconds = 5;
  std::uint64_t seed = 1;
};

struct LoadOptions {
  double load = 0.6;
  double real_time_share = 0.8;
  bool overload = false;  // real-time streams for kOverloadShare of each link
};
inline constexpr double kOverloadShare = 1.25;  // clearly more than fits

// Streams over the clips of `trace_dir`, every node sending and receiving the same load.
emu::Result<Scenario> make_scenario(const emu::Config& config, const std::string& trace_dir,
                                    const LoadOptions& load, std::uint64_t seed);
// Streams of a plan; a clip's sizes come from the .trace file beside it.
emu::Result<Scenario> read_scenario(const emu::Config& config, const std::string& plan_path);

}  // namespace sim
