// fabricd's metric page: what the engine, the books, the power windows, the clock and the ports
// count, copied out ten times a second. Called by the loop.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "emu/base/result.h"
#include "emu/clock/pace.h"
#include "emu/config/config.h"
#include "emu/metrics/page.h"
#include "fabric/admit/admission.h"
#include "fabric/daemon/edge.h"
#include "fabric/daemon/links.h"
#include "fabric/daemon/notices.h"
#include "fabric/daemon/power.h"
#include "fabric/port/port.h"
#include "fabric/router/network.h"

namespace fabric {

struct PublishSources {
  const Network& network;
  const Edge& edge;
  const Admission& admission;
  const emu::Pace& pace;
  const PowerWindows& power;
  const Links& links;
  const Notices* notices;  // null: routers tell nothing
  // Per node: the port it is, or was last, attached by; null: never.
  std::array<const Port*, emu::kNodesMax> port_of_node{};
  const std::array<std::uint64_t, emu::kNodesMax>& sessions;
};

// Whether a page has room for the metrics of such a network.
emu::Result<void> page_fits(const Network& network);

class Publisher {
 public:
  static emu::Result<std::unique_ptr<Publisher>> make(const std::string& run_dir,
                                                      const emu::Config& config,
                                                      const Network& network);
  void publish(const PublishSources& from);

 private:
  struct LaneSeries {
    emu::Counter flits, packets;
  };
  struct PortSeries {  // of a port with a link
    emu::PortId port = 0;
    std::array<LaneSeries, emu::kVlCount> lanes;
    emu::Counter wait;
    emu::Gauge booked;
  };
  struct SwitchSeries {
    std::vector<PortSeries> ports;
    emu::Gauge buffered, power, bookings, booked_power;
    emu::Counter admitted, released;
    std::array<emu::Counter, 6> refused;  // by BookResult; the first two unused
    double pj_before = 0;
  };
  struct NodeSeries {
    emu::Gauge up;
    emu::Counter wait, sessions, faults, bytes_in, bytes_out;
    emu::Counter frames_in, frames_out, repeated, duplicate, refused;  // of kinds with frames
  };

  Publisher(emu::MetricsPage page, const emu::Config& config);
  void make_switches(const Network& network);
  void make_nodes(const emu::Config& config);
  void publish_switches(const PublishSources& from);
  void publish_nodes(const PublishSources& from);
  void publish_clock(const emu::Pace& pace, emu::Cycle now);
  void publish_power(const PowerWindows& power);

  emu::MetricsPage page_;
  emu::CycleTime cycle_time_;
  std::vector<SwitchSeries> switches_;
  std::vector<NodeSeries> nodes_;
  emu::Counter engine_cycles_, emulated_ns_, given_up_ns_, held_ns_, power_windows_, power_above_;
  emu::Counter congested_, relieved_, marked_;
  emu::Gauge in_flight_, links_down_, dilation_, dilation_window_;
  emu::Gauge power_last_, power_mean_, power_max_, power_cap_;
  emu::Histogram lag_;
  std::array<emu::Histogram, emu::kClassCount> queueing_;
  bool has_frames_ = false;
  emu::Cycle published_cycle_ = 0;
};

}  // namespace fabric
