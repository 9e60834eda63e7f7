#include "fabric/daemon/publish.h"

#include <numeric>
#include <string>
#include <utility>

#include "emu/metrics/layout.h"

namespace fabric {

namespace {
constexpr std::size_t kFirstRefusal = static_cast<std::size_t>(BookResult::output_link);

// Room for every series of every port: the largest live fabrics have tens of thousands.
emu::PageLimits limits_for(const Network& network) {
  constexpr std::uint32_t kOfPort = 2 * emu::kVlCount + 2;
  constexpr std::uint32_t kOfRouter = 16;
  constexpr std::uint32_t kOfNode = 16;
  std::uint32_t series = 1024 + kOfNode * static_cast<std::uint32_t>(network.nodes());
  for (int r = 0; r < network.routers(); ++r) {
    const int ports = network.ports(static_cast<emu::RouterId>(r));
    series += kOfRouter + kOfPort * static_cast<std::uint32_t>(ports);
  }
  return {.series_max = series, .words_max = series + emu::PageLimits{}.words_max};
}

bool leads_somewhere(const Network& network, emu::RouterId router, emu::PortId port) {
  return network.node_at(router, port) != kNoNode ||
         network.peer(router, port).router != emu::kNoRouter;
}
}  // namespace

emu::Result<void> page_fits(const Network& network) {
  const emu::PageLimits limits = limits_for(network);
  const std::size_t bytes = emu::page_file_bytes(limits);
  if (bytes <= emu::kPageFileBytesMax) return {};
  return emu::fail(
      "network.topology: metrics of all ports of {} routers take {} MiB, must be at most {}: have "
      "fewer routers or ports",
      network.routers(), bytes >> 20, emu::kPageFileBytesMax >> 20);
}

Publisher::Publisher(emu::MetricsPage page, const emu::Config& config)
    : page_(std::move(page)), cycle_time_(config.network.cycle_time()) {}

emu::Result<std::unique_ptr<Publisher>> Publisher::make(const std::string& run_dir,
                                                        const emu::Config& config,
                                                        const Network& network) {
  auto page = emu::MetricsPage::create(run_dir, "fabricd", limits_for(network));
  if (!page) return std::unexpected(page.error());
  std::unique_ptr<Publisher> publisher(new Publisher(std::move(*page), config));
  publisher->make_switches(network);
  publisher->make_nodes(config);
  emu::MetricsPage& p = publisher->page_;
  publisher->engine_cycles_ = p.counter(emu::Metric::engine_cycles);
  publisher->in_flight_ = p.gauge(emu::Metric::engine_messages_in_flight);
  publisher->links_down_ = p.gauge(emu::Metric::links_down);
  publisher->congested_ = p.counter(emu::Metric::congestion_notices, {"congestion"});
  publisher->relieved_ = p.counter(emu::Metric::congestion_notices, {"relief"});
  publisher->marked_ = p.counter(emu::Metric::congestion_marked);
  publisher->emulated_ns_ = p.counter(emu::Metric::clock_emulated);
  publisher->given_up_ns_ = p.counter(emu::Metric::clock_given_up);
  publisher->held_ns_ = p.counter(emu::Metric::clock_held);
  for (std::size_t i = 0; i < emu::kClassCount; ++i) {
    publisher->queueing_[i] = p.histogram(emu::Metric::class_queueing, {emu::kClassNames[i]});
  }
  publisher->dilation_ = p.gauge(emu::Metric::clock_dilation);
  publisher->dilation_window_ = p.gauge(emu::Metric::clock_dilation_window);
  publisher->lag_ = p.histogram(emu::Metric::clock_lag);
  p.gauge(emu::Metric::clock_mode,
          {emu::kClockModeNames[static_cast<std::size_t>(config.clock.mode)]})
      .set(1);
  publisher->power_last_ = p.gauge(emu::Metric::power_last);
  publisher->power_mean_ = p.gauge(emu::Metric::power_mean);
  publisher->power_max_ = p.gauge(emu::Metric::power_max);
  publisher->power_cap_ = p.gauge(emu::Metric::power_cap);
  publisher->power_windows_ = p.counter(emu::Metric::power_windows);
  publisher->power_above_ = p.counter(emu::Metric::power_windows_above);
  publisher->published_cycle_ = network.now();
  return publisher;
}

void Publisher::make_switches(const Network& network) {
  for (int r = 0; r < network.routers(); ++r) {
    const std::string router = std::to_string(r);
    SwitchSeries& s = switches_.emplace_back();
    const int ports = network.ports(static_cast<emu::RouterId>(r));
    for (int q = 0; q < ports; ++q) {
      if (!leads_somewhere(network, static_cast<emu::RouterId>(r), static_cast<emu::PortId>(q)))
        continue;
      const std::string port = std::to_string(q);
      PortSeries& series = s.ports.emplace_back();
      series.port = static_cast<emu::PortId>(q);
      for (std::size_t vl = 0; vl < emu::kVlCount; ++vl) {
        const std::string lane = std::to_string(vl);
        series.lanes[vl].flits = page_.counter(emu::Metric::switch_flits, {router, port, lane});
        series.lanes[vl].packets = page_.counter(emu::Metric::switch_packets, {router, port, lane});
      }
      series.wait = page_.counter(emu::Metric::switch_wait, {router, port});
      series.booked = page_.gauge(emu::Metric::switch_booked, {router, port});
    }
    s.buffered = page_.gauge(emu::Metric::switch_buffered, {router});
    s.power = page_.gauge(emu::Metric::switch_power, {router});
    s.bookings = page_.gauge(emu::Metric::switch_bookings, {router});
    s.booked_power = page_.gauge(emu::Metric::switch_booked_power, {router});
    s.admitted = page_.counter(emu::Metric::switch_admitted, {router});
    s.released = page_.counter(emu::Metric::switch_released, {router});
    for (std::size_t i = kFirstRefusal; i < s.refused.size(); ++i) {
      s.refused[i] = page_.counter(emu::Metric::switch_rejected,
                                   {router, name_of(static_cast<BookResult>(i))});
    }
  }
}

void Publisher::make_nodes(const emu::Config& config) {
  const auto kind = emu::name_of(config.attach.kind);
  has_frames_ = config.attach.kind != emu::AttachKind::shm;
  for (const auto& node : config.nodes) {
    NodeSeries& n = nodes_.emplace_back();
    n.up = page_.gauge(emu::Metric::attach_up, {node.name, "fabric", kind});
    n.sessions = page_.counter(emu::Metric::attach_sessions, {node.name, "fabric", kind});
    n.faults = page_.counter(emu::Metric::attach_faults, {node.name, "fabric", kind});
    n.bytes_in = page_.counter(emu::Metric::attach_bytes_received, {node.name, "fabric", kind});
    n.bytes_out = page_.counter(emu::Metric::attach_bytes_sent, {node.name, "fabric", kind});
    n.wait = page_.counter(emu::Metric::port_xmit_wait, {node.name, config.hca.device, "1"});
    if (!has_frames_) continue;
    n.frames_in = page_.counter(emu::Metric::attach_frames_received, {node.name, "fabric", kind});
    n.frames_out = page_.counter(emu::Metric::attach_frames_sent, {node.name, "fabric", kind});
    n.repeated = page_.counter(emu::Metric::attach_retransmits, {node.name, "fabric", kind});
    n.duplicate =
        page_.counter(emu::Metric::attach_drops, {node.name, "fabric", kind, "duplicate"});
    n.refused = page_.counter(emu::Metric::attach_drops, {node.name, "fabric", kind, "refused"});
  }
}

void Publisher::publish(const PublishSources& from) {
  publish_switches(from);
  publish_nodes(from);
  publish_clock(from.pace, from.network.now());
  publish_power(from.power);
  in_flight_.set(static_cast<double>(from.edge.in_flight()));
  links_down_.set(static_cast<double>(from.links.down_count()));
  if (from.notices != nullptr) {
    congested_.set(from.notices->congestion());
    relieved_.set(from.notices->relief());
    marked_.set(from.notices->marked());
  }
  for (std::size_t i = 0; i < queueing_.size(); ++i) {
    queueing_[i].set(from.edge.classes()[i].queueing_ns);
  }
  published_cycle_ = from.network.now();
}

void Publisher::publish_switches(const PublishSources& from) {
  const double elapsed_ns =
      static_cast<double>(cycle_time_.ns(from.network.now() - published_cycle_));
  for (std::size_t r = 0; r < switches_.size(); ++r) {
    const auto router = static_cast<emu::RouterId>(r);
    SwitchSeries& s = switches_[r];
    unsigned buffered = 0;
    const Book& book = from.admission.book(router);
    for (PortSeries& series : s.ports) {
      const PortCounters counters = from.network.router_counters(router, series.port);
      const Network::Occupancy now = from.network.occupancy(router, series.port);
      for (std::size_t vl = 0; vl < emu::kVlCount; ++vl) {
        series.lanes[vl].flits.set(counters.sent[vl].flits);
        series.lanes[vl].packets.set(counters.sent[vl].packets);
        buffered += now.input[vl] + 0U + now.output[vl];
      }
      series.wait.set(counters.wait_cycles);
      series.booked.set(static_cast<double>(book.used_out_bps(series.port)));
    }
    s.buffered.set(buffered);
    const double pj = from.power.router_pj(router);
    if (elapsed_ns > 0) s.power.set((pj - s.pj_before) / elapsed_ns * 1e-3);  // pJ / ns = mW
    s.pj_before = pj;
    s.bookings.set(book.bookings());
    s.booked_power.set(book.used_power_w());
    const AdmissionCounts& counts = from.admission.counts(router);
    s.admitted.set(counts.admitted);
    s.released.set(counts.released);
    for (std::size_t i = kFirstRefusal; i < s.refused.size(); ++i) {
      s.refused[i].set(counts.refused[i]);
    }
  }
}

void Publisher::publish_nodes(const PublishSources& from) {
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    const auto node = static_cast<emu::NodeId>(i);
    NodeSeries& n = nodes_[i];
    n.up.set(from.edge.is_attached(node) ? 1 : 0);
    n.sessions.set(from.sessions[i]);
    n.wait.set(from.network.wire_counters(node).wait_cycles);
    if (from.port_of_node[i] == nullptr) continue;
    const AttachCounters& counters = from.port_of_node[i]->counters(node);
    n.faults.set(counters.violations);
    n.bytes_in.set(counters.bytes_in);
    n.bytes_out.set(counters.bytes_out);
    if (!has_frames_) continue;
    n.frames_in.set(counters.frames.frames_in);
    n.frames_out.set(counters.frames.frames_out);
    n.repeated.set(counters.frames.frames_repeated);
    n.duplicate.set(counters.frames.frames_duplicate);
    n.refused.set(counters.frames.frames_refused);
  }
}

void Publisher::publish_clock(const emu::Pace& pace, emu::Cycle now) {
  engine_cycles_.set(now);
  emulated_ns_.set(cycle_time_.ns(now));
  given_up_ns_.set(pace.given_up_ns());
  held_ns_.set(pace.held_ns());
  dilation_.set(pace.dilation().overall);
  dilation_window_.set(pace.dilation().window);
  lag_.set(pace.lag_histogram());
}

void Publisher::publish_power(const PowerWindows& power) {
  const emu::PowerMeter& meter = power.meter();
  power_last_.set(meter.last_w());
  power_mean_.set(meter.mean_w());
  power_max_.set(meter.max_w());
  power_cap_.set(meter.cap_w());
  power_windows_.set(meter.windows());
  power_above_.set(meter.windows_above_cap());
}

}  // namespace fabric
