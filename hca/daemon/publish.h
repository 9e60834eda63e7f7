// hcad's metric page: what hca/host counted, copied now and then, and the latency of what arrives.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "emu/base/result.h"
#include "emu/config/config.h"
#include "emu/metrics/page.h"
#include "emu/wire/channel.h"
#include "hca/host/host.h"
#include "hca/host/options.h"

namespace hca {

class Publisher {
 public:
  static emu::Result<Publisher> open(const std::string& run_dir, const emu::Config& config,
                                     emu::NodeId node);

  // Packets that arrived: network latency, head injected to tail arrived.
  void arrived(emu::TrafficClass traffic_class, emu::EmuNs latency_ns, std::uint64_t packets) {
    latency_[static_cast<std::size_t>(traffic_class)].add(latency_ns, packets);
  }

  struct Session {
    bool up = false;
    std::uint64_t sessions = 0;
    emu::ChannelCounters frames;  // of ways to attach that have frames
  };
  void publish(const Host& host, std::size_t clients, const Session& session);
  // What was published last of a counter of the port, by the name of its file
  // (emu/metrics/port_files.h); none: another process counts that one.
  std::optional<std::uint64_t> port_file(std::string_view name) const;

 private:
  explicit Publisher(emu::MetricsPage page) : page_(std::move(page)) {}
  void add_counter(emu::Metric metric, std::initializer_list<std::string_view> labels,
                   std::function<std::uint64_t(const HostCounters&)> read);
  void add_transport(std::string_view node, std::string_view device);
  void add_controls(std::string_view node, std::string_view device);
  void add_classes(std::string_view node, std::string_view device);
  void add_port(std::string_view node, std::string_view device, std::uint64_t flit_bits);
  void add_frames(std::string_view node, std::string_view kind);

  std::optional<emu::Counter> counter_of(emu::Metric metric) const;

  struct Copied {
    emu::Metric metric;
    emu::Counter counter;
    std::function<std::uint64_t(const HostCounters&)> read;
  };

  emu::MetricsPage page_;
  std::vector<Copied> copied_;
  std::array<emu::Histogram, emu::kClassCount> latency_;
  emu::Gauge clients_;
  emu::Gauge up_;
  emu::Gauge reserved_;
  emu::Gauge credits_;
  emu::Gauge congestion_delay_;
  std::vector<emu::Gauge> schemes_;  // in the order of congestion_schemes()
  emu::Gauge attach_up_;
  emu::Counter sessions_;
  emu::Counter link_downed_;
  emu::Counter link_recovered_;
  std::array<emu::Gauge, kQpStates> qps_;
  struct Frames {
    emu::Counter sent, received, repeated, duplicate, refused;
  };
  std::optional<Frames> frames_;
  std::uint32_t credit_limit_ = 0;
};

}  // namespace hca
