// One point of an experiment: what is simulated, what runs on it and for how long. A value, read
// from TOML: the sections of a cluster file (emu/config) and beside them [workload] and [run].
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "emu/base/result.h"
#include "emu/config/config.h"
#include "emu/lane/policy.h"
#include "tools/load/gaps.h"
#include "tools/sim/failures.h"
#include "tools/sim/pattern.h"

namespace tools {

enum class StreamKind : std::uint8_t { none, vbr, cbr, mpeg2, on_off };
inline constexpr std::string_view kStreamNames[] = {"none", "vbr", "cbr", "mpeg2", "on_off"};
// Destinations of streams: every node sends and receives as many, or each drawn by itself.
enum class Placement : std::uint8_t { balanced, uniform };
inline constexpr std::string_view kPlacementNames[] = {"balanced", "uniform"};
// When the input regulator lets go of a message: at the end of its part of the frame time, so that
// frames of any size are complete one frame time apart, or at its beginning.
enum class Regulator : std::uint8_t { end, begin };
inline constexpr std::string_view kRegulatorNames[] = {"end", "begin"};

// A flow of its own between two nodes.
struct FlowSpec {
  std::string label;
  emu::NodeId source = 0;
  emu::NodeId dest = 0;
  double load = 1;                  // of a link
  std::uint16_t message_flits = 0;  // 0: as the workload's
};

// The card between consumers and the wire half (tools/sim/nic.h); none: messages cost no DMA.
enum class NicKind : std::uint8_t { none, iba, qos, qos_message, traditional };
inline constexpr std::string_view kNicNames[] = {"none", "iba", "qos", "qos_message",
                                                 "traditional"};

// Normal frame sizes with more deviation would be below nothing so often that their mean grew: at a
// half of the mean it grows by 0.4 %, at 0.58 by 1 %, at 1 by 8 %.
inline constexpr double kFrameSdMost = 0.5;

struct WorkloadSpec {
  double load = 0.6;             // of a link, flits a cycle; of streams as load_counts_headers says
  double real_time_share = 0.8;  // x / (x + y)
  // The share in equal parts of the run, one after another; empty: real_time_share throughout.
  std::vector<double> phases;

  StreamKind streams = StreamKind::vbr;
  Placement placement = Placement::balanced;
  double stream_kbps = 4000;  // mean of a synthetic stream, without headers
  double frame_sd = 0.2;      // of a frame's size but cbr's, of its mean: 3333 of 16666 bytes
  double frame_ms = 1000.0 / 30;
  Regulator regulator = Regulator::end;
  std::uint32_t message_flits = 40;
  std::uint32_t header_flits = 1;  // of each message, beside its part of the frame
  // Offered load counts the payload of streams alone (0) or their headers too (1).
  bool load_counts_headers = false;
  double on_ms = 1;  // on_off: mean times
  double off_ms = 1;

  ArrivalLaw arrivals = ArrivalLaw::poisson;  // of best effort
  PatternKind pattern = PatternKind::uniform;
  double hot_share = 0.1;
  double pareto_shape = 1.4;       // self_similar: H = (3 - shape) / 2 = 0.8
  double pulse_load = 0;           // square pulses: this load instead, every other pulse_cycles
  std::uint64_t pulse_cycles = 0;  // 0: none

  std::uint32_t flit_payload_bytes = 0;  // of a cell; 0: all of its bits
  std::vector<FlowSpec> flows;           // instead of everything above but message_flits

  // Router pcs: streams that may ask for a circuit until the load is there.
  std::uint32_t circuit_attempts = 0;

  double control_per_frame = 0;  // control messages of a node in frame_ms
  std::uint32_t control_flits = 20;
};

struct RunSpec {
  std::uint64_t seed = 1;
  std::uint64_t batch_cycles = 100'000;
  std::uint32_t batches = 10;
  // Lanes of control, real time, best effort, instead of the cluster file's: the papers' routers
  // have none of their own for control traffic when there is none.
  // Control and best effort may share lanes; real time has its own, except with router p.
  std::array<emu::LaneMask, emu::kClassCount> lanes{};
  bool lanes_given = false;
  bool hca = false;  // best effort passes HCAs with the cluster file's [controls]
  // Cycles between two looks at sources, HCAs and events; 0: 500 without HCAs, 16 with, 1 where
  // routers tell HCAs of congestion. With a card no more than its DMA's set-up.
  std::uint32_t look_cycles = 0;
  // The card; its DMA engines: time to set one up, rate (64 bits at 66 MHz); local memory.
  NicKind nic = NicKind::none;
  double dma_setup_us = 1;
  double dma_mbps = 4224;
  double nic_memory_kb = 2048;
  // Router cell: what a host takes for a message. The card takes the ends of two at least so far
  // apart, and the message has that way to go still.
  double receive_us = 0;
  std::vector<FailureSpec> failures;
};

struct Point {
  emu::Config cluster;
  WorkloadSpec workload;
  RunSpec run;

  // What follows a change of load or of links is measured, and no steady state: there is no
  // warm-up, and tails are those of the whole run (tools/flitnet/lab/experiment.py says the same).
  bool transient() const;
};

// Every key is checked: unknown ones and values out of range are errors of one line.
emu::Result<Point> parse_point(std::string_view toml, std::string_view source);

}  // namespace tools
