// Who sends what when: the papers' workloads as sources of flit messages, without a network. In: a
// horizon. Out: every message that is created before it, per node, with the cycle of its creation.
// The input regulator is here: a frame's messages leave evenly over the frame's time.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "emu/base/prng.h"
#include "emu/base/result.h"
#include "emu/base/units.h"
#include "emu/lane/policy.h"
#include "emu/wire/notice.h"
#include "tools/sim/pattern.h"
#include "tools/sim/point.h"

namespace tools {

// What an HCA reports of its router, or the sum over all (tools/sim/in_band.h).
struct StateReport {
  std::uint32_t full = 0;       // buffers without room
  std::uint64_t delivered = 0;  // flits, since the start
  std::uint32_t round = 0;
  bool total = false;
};

struct FlitMessage {
  emu::Cycle created = 0;
  emu::Cycle accepted = 0;   // by its HCA; without one when it was created
  emu::Cycle launch = 0;     // from then on its lane may send it
  std::uint32_t stream = 0;  // kNoStream: of no stream
  std::uint32_t frame = 0;   // of the stream
  std::uint16_t flits = 1;
  emu::NodeId source = 0;
  emu::NodeId dest = 0;
  emu::Vl vl_in = 0;
  emu::Vl vl_out = 0;
  emu::TrafficClass traffic_class = emu::TrafficClass::best_effort;
  emu::Vtick vtick = emu::kVtickMax;
  std::uint16_t tag = 0;   // of the congestion control
  std::uint16_t flow = 0;  // of WorkloadSpec::flows, from 1; 0: of none
  // A control message from a router that tells its destination so (tools/sim/notice_way.h).
  std::optional<emu::Notice> notice;
  std::optional<StateReport> report;
  // Made by HCAs for themselves: no card and no HCA in front of it.
  bool of_hcas() const { return notice.has_value() || report.has_value(); }
};
inline constexpr std::uint32_t kNoStream = 0xffff;

// Of messages that leave a flit in so many cycles: by the rule of what is booked
// (emu/lane/policy.h), as live HCAs and arbiters have it. Parts of a cycle count in 2^-20: what
// arithmetic loses is less.
inline emu::Vtick vtick_of(double cycles) {
  constexpr double kParts = 1 << 20;
  const double most = std::min(cycles, static_cast<double>(emu::kVtickMax));
  return emu::vtick_of(static_cast<std::uint64_t>(most * kParts + 0.5), 1 << 20);
}

// What a stream asks of admission: rates with headers, lanes at the HCA and behind routers.
struct StreamDemand {
  emu::NodeId source = 0;
  emu::NodeId dest = 0;
  emu::Vl vl_in = 0;
  emu::Vl vl_out = 0;
  std::uint64_t rate_bps = 0;
  std::uint64_t peak_bps = 0;
  emu::Vtick vtick = emu::kVtickMax;
};

class Source {
 public:
  virtual ~Source() = default;
  // Appends what is created before `horizon`; horizons never fall. Returns a cycle up to which
  // nothing more is created: nobody need ask before.
  virtual emu::Cycle feed(emu::Cycle horizon, std::vector<FlitMessage>& out) = 0;
};

// Whether a workload has such traffic at any time.
bool has_streams(const WorkloadSpec& spec);
bool has_best_effort(const WorkloadSpec& spec);

// What all sources of a run share.
struct Setting {
  WorkloadSpec spec;
  emu::CycleTime time;
  double flits_per_cycle_mbps = 0;  // one flit a cycle, in Mb/s: the link
  std::uint32_t flit_bits = 128;
  int nodes = 8;
  std::array<emu::LaneMask, emu::kClassCount> lanes{};
  emu::Cycle end = 0;  // of the run: phases divide it
  // Real-time share in force at a cycle.
  double share_at(emu::Cycle cycle) const;
  // The first cycle of the phase behind that of `cycle`. There are phases.
  emu::Cycle next_phase(emu::Cycle cycle) const;
};

// Frames told to whoever counts deadlines: how many messages frame `frame` of `stream` has.
class FrameBook {
 public:
  virtual ~FrameBook() = default;
  virtual void frame_begins(std::uint32_t stream, std::uint32_t frame, std::uint32_t messages) = 0;
};

struct Workload {
  std::vector<std::unique_ptr<Source>> sources;
  std::uint32_t streams = 0;
  std::vector<StreamDemand> demands;          // by stream
  std::vector<std::size_t> source_of_stream;  // into sources
  double stream_load = 0;  // of a link, with headers: what the chosen streams really offer
};

// Everything of the spec, each random choice from `seed`. Fails where it cannot be had.
emu::Result<Workload> make_workload(const Setting& setting, FrameBook& book, std::uint64_t seed);

// The seven sequences of MW table III, kbit: mean size of an I, P and B frame (N = 12, M = 3).
struct Mpeg2Sequence {
  double i_kbit;
  double p_kbit;
  double b_kbit;
};
std::span<const Mpeg2Sequence> mpeg2_sequences();

}  // namespace tools
