// The words of the command line -> flows: "best-effort=48M", "control", "on-off=8M". Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "emu/base/result.h"
#include "tools/load/flow.h"
#include "tools/replay/plan.h"

namespace tools {

struct KindOptions {
  std::uint32_t flit_bytes = 16;
  std::uint32_t header_bytes = 34;   // LRH, BTH, DETH, ICRC, VCRC; with a GRH (RoCE) 40 more
  std::uint32_t packet_flits = 40;   // of best effort and on-off
  std::uint32_t control_flits = 10;  // ACP's control packets
  double default_bps = 0;            // for kinds without a rate of their own
  std::uint64_t seed = 1;
  ArrivalLaw law = ArrivalLaw::poisson;  // of best effort
  double pareto_shape = 1.4;
  double link_bps = 400e6;  // how fast the messages of a burst follow each other
};

// Factors of a kind's rate, each for one step (ArrivalOptions).
struct Profile {
  std::string kind;
  std::vector<double> factors;
};

// "48M", "4000000", "1.6G", "500k": bits per second on the link.
emu::Result<double> parse_rate(std::string_view text);
// Payload of a UD packet of `flits` flits, whole words of 4 bytes; a stamp at least.
std::uint32_t ud_payload(std::uint32_t flits, const KindOptions& options);
// Which option says how long the packets of a kind are.
std::string_view flits_option(std::string_view kind);
// Whether a kind is made of video-like frames and belongs to the replayer.
bool is_stream_kind(std::string_view kind);

// As many streams of 4 Mb/s from `node` as the rate needs (0: one), to the destinations in turn,
// their frames spread over a frame time. Each VBR stream draws frame sizes of its own, also where
// nodes share a seed.
emu::Result<std::vector<StreamPlan>> synthetic_streams(const std::string& kind,
                                                       const std::string& node,
                                                       const std::vector<std::string>& to,
                                                       double bps, std::uint64_t seed);

// "best-effort=1,0.5,0": factors of 0 or more, not all 0.
emu::Result<Profile> parse_profile(std::string_view word);

emu::Result<FlowOptions> parse_kind(std::string_view word, const KindOptions& options);

}  // namespace tools
