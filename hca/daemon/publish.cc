#include "hca/daemon/publish.h"

#include <algorithm>
#include <utility>

#include <fmt/core.h>

#include "emu/metrics/port_files.h"

namespace hca {

namespace {
using emu::Metric;
constexpr std::size_t index_of(emu::TrafficClass traffic_class) {
  return static_cast<std::size_t>(traffic_class);
}
constexpr std::string_view kPort = "1";
constexpr std::array<std::string_view, kQpStates> kStateNames = {"reset", "init", "rtr", "rts",
                                                                 "sqd",   "sqe",  "err"};
}  // namespace

emu::Result<Publisher> Publisher::open(const std::string& run_dir, const emu::Config& config,
                                       emu::NodeId node) {
  const std::string& name = config.nodes[node].name;
  const std::string& device = config.hca.device;
  auto page = emu::MetricsPage::create(run_dir, "hcad-" + name);
  if (!page) return std::unexpected(page.error());
  Publisher publisher(std::move(*page));
  emu::MetricsPage& p = publisher.page_;
  publisher.add_transport(name, device);
  publisher.add_controls(name, device);
  publisher.add_classes(name, device);
  publisher.add_port(name, device, config.network.flit_bits);
  publisher.clients_ = p.gauge(Metric::clients, {name, device});
  publisher.up_ = p.gauge(Metric::port_up, {name, device, kPort});
  publisher.reserved_ = p.gauge(Metric::admission_reserved, {name, device});
  publisher.credits_ = p.gauge(Metric::credits, {name, device, "best_effort"});
  publisher.credit_limit_ = config.controls.best_effort_credits;
  p.gauge(Metric::credit_limit, {name, device, "best_effort"}).set(publisher.credit_limit_);
  publisher.congestion_delay_ = p.gauge(Metric::congestion_delay, {name, device});
  const std::string_view kind = emu::name_of(config.attach.kind);
  for (const CongestionScheme& scheme : congestion_schemes()) {
    publisher.schemes_.push_back(p.gauge(Metric::congestion_scheme, {name, device, scheme.name}));
  }
  publisher.attach_up_ = p.gauge(Metric::attach_up, {name, "hca", kind});
  publisher.sessions_ = p.counter(Metric::attach_sessions, {name, "hca", kind});
  publisher.link_downed_ = p.counter(Metric::port_link_downed, {name, device, kPort});
  publisher.link_recovered_ = p.counter(Metric::port_link_recovered, {name, device, kPort});
  if (config.attach.kind != emu::AttachKind::shm) publisher.add_frames(name, kind);
  for (std::size_t i = 0; i < kQpStates; ++i) {
    publisher.qps_[i] = p.gauge(Metric::qps, {name, device, kStateNames[i]});
  }
  p.gauge(Metric::port_rate, {name, device, kPort})
      .set(static_cast<double>(config.network.link_bps()));
  p.gauge(Metric::port_lid, {name, device, kPort}).set(emu::lid_of(node));
  return publisher;
}

void Publisher::add_counter(Metric metric, std::initializer_list<std::string_view> labels,
                            std::function<std::uint64_t(const HostCounters&)> read) {
  copied_.push_back({metric, page_.counter(metric, labels), std::move(read)});
}

void Publisher::add_transport(std::string_view node, std::string_view device) {
  const auto add = [&](Metric metric, std::uint64_t HostCounters::*field) {
    add_counter(metric, {node, device}, [field](const HostCounters& c) { return c.*field; });
  };
  add(Metric::acks_sent, &HostCounters::acks_sent);
  add(Metric::naks_sent, &HostCounters::naks_sent);
  add(Metric::naks_received, &HostCounters::naks_received);
  add(Metric::rnr_naks_sent, &HostCounters::rnr_naks_sent);
  add(Metric::rnr_naks_received, &HostCounters::rnr_naks_received);
  add(Metric::rc_retransmits, &HostCounters::packets_retransmitted);
  add(Metric::rc_timeouts, &HostCounters::timeouts);
  add(Metric::rc_duplicates, &HostCounters::duplicates_received);
  add(Metric::rc_out_of_sequence, &HostCounters::out_of_sequence_received);
  add(Metric::cq_overruns, &HostCounters::cq_overruns);
  const auto add_reason = [&](Metric metric, std::string_view reason,
                              std::uint64_t HostCounters::*field) {
    add_counter(metric, {node, device, reason},
                [field](const HostCounters& c) { return c.*field; });
  };
  add_reason(Metric::dropped_packets, "bad_packet", &HostCounters::dropped_bad_packet);
  add_reason(Metric::dropped_packets, "no_qp", &HostCounters::dropped_no_qp);
  add_reason(Metric::dropped_packets, "bad_key", &HostCounters::dropped_bad_key);
  add_reason(Metric::dropped_packets, "no_receive", &HostCounters::dropped_no_receive);
  add_reason(Metric::dropped_packets, "broken_message", &HostCounters::dropped_messages);
  add_reason(Metric::bad_requests, "wqe", &HostCounters::bad_wqes);
  add_reason(Metric::bad_requests, "ring", &HostCounters::ring_faults);
  add_reason(Metric::bad_requests, "memory", &HostCounters::memory_faults);
  add_counter(Metric::port_rcv_errors, {node, device, kPort},
              [](const HostCounters& c) { return c.dropped_bad_packet; });
  add_counter(Metric::port_xmit_discards, {node, device, kPort},
              [](const HostCounters& c) { return c.packets_discarded; });
}

void Publisher::add_frames(std::string_view node, std::string_view kind) {
  const auto counter = [&](Metric metric) { return page_.counter(metric, {node, "hca", kind}); };
  const auto drops = [&](std::string_view reason) {
    return page_.counter(Metric::attach_drops, {node, "hca", kind, reason});
  };
  frames_ = {counter(Metric::attach_frames_sent), counter(Metric::attach_frames_received),
             counter(Metric::attach_retransmits), drops("duplicate"), drops("refused")};
}

void Publisher::add_controls(std::string_view node, std::string_view device) {
  add_counter(Metric::credit_waits, {node, device, "best_effort"},
              [](const HostCounters& c) { return c.credit_waits; });
  add_counter(Metric::lane_waits, {node, device},
              [](const HostCounters& c) { return c.lane_waits; });
  add_counter(Metric::power_waits, {node, device},
              [](const HostCounters& c) { return c.power_waits; });
  add_counter(Metric::power_wait_cycles, {node, device},
              [](const HostCounters& c) { return c.power_wait_cycles; });
  add_counter(Metric::admission_asked, {node, device},
              [](const HostCounters& c) { return c.admissions_asked; });
  add_counter(Metric::admission_granted, {node, device},
              [](const HostCounters& c) { return c.admissions_granted; });
  add_counter(Metric::admission_answered, {node, device},
              [](const HostCounters& c) { return c.admissions_answered; });
  add_counter(Metric::admission_setup, {node, device},
              [](const HostCounters& c) { return c.admission_cycles_total; });
  add_counter(Metric::admission_refused, {node, device, "hca"},
              [](const HostCounters& c) { return c.admissions_refused_hca; });
  add_counter(Metric::admission_refused, {node, device, "router"},
              [](const HostCounters& c) { return c.admissions_refused_router; });
}

void Publisher::add_classes(std::string_view node, std::string_view device) {
  for (std::size_t i = 0; i < emu::kClassCount; ++i) {
    const auto name = emu::kClassNames[i];
    latency_[i] = page_.histogram(Metric::class_latency, {node, device, name});
    const auto add = [&](Metric metric, std::uint64_t ClassCounters::*field) {
      add_counter(metric, {node, device, name},
                  [i, field](const HostCounters& c) { return c.by_class[i].*field; });
    };
    add(Metric::class_sent_packets, &ClassCounters::packets_sent);
    add(Metric::class_received_packets, &ClassCounters::packets_received);
    add(Metric::class_sent_bytes, &ClassCounters::bytes_sent);
    add(Metric::class_received_bytes, &ClassCounters::bytes_received);
  }
}

// In words of 4 bytes, of whole flits: what perfquery says of the port is counted so too.
void Publisher::add_port(std::string_view node, std::string_view device, std::uint64_t flit_bits) {
  using C = HostCounters;
  const auto add = [&](Metric metric, std::uint64_t C::*field, std::uint64_t words) {
    add_counter(metric, {node, device, kPort},
                [field, words](const C& c) { return c.*field * words; });
  };
  add(Metric::port_xmit_packets, &C::port_packets_sent, 1);
  add(Metric::port_rcv_packets, &C::port_packets_received, 1);
  add(Metric::multicast_xmit_packets, &C::port_multicast_sent, 1);
  add(Metric::multicast_rcv_packets, &C::port_multicast_received, 1);
  add_counter(Metric::unicast_xmit_packets, {node, device, kPort},
              [](const C& c) { return c.port_packets_sent - c.port_multicast_sent; });
  add_counter(Metric::unicast_rcv_packets, {node, device, kPort},
              [](const C& c) { return c.port_packets_received - c.port_multicast_received; });
  add(Metric::port_xmit_data, &C::port_flits_sent, flit_bits / 32);
  add(Metric::port_rcv_data, &C::port_flits_received, flit_bits / 32);
}

void Publisher::publish(const Host& host, std::size_t clients, const Session& session) {
  const HostCounters& counters = host.counters();
  for (auto& each : copied_) each.counter.set(each.read(counters));
  clients_.set(static_cast<double>(clients));
  up_.set(session.up ? 1 : 0);
  attach_up_.set(session.up ? 1 : 0);
  sessions_.set(session.sessions);
  link_downed_.set(session.sessions -
                   std::min<std::uint64_t>(session.sessions, session.up ? 1 : 0));
  link_recovered_.set(session.sessions - std::min<std::uint64_t>(session.sessions, 1));
  const auto states = host.qps_by_state();
  for (std::size_t i = 0; i < kQpStates; ++i) qps_[i].set(states[i]);
  if (frames_) {
    frames_->sent.set(session.frames.frames_out);
    frames_->received.set(session.frames.frames_in);
    frames_->repeated.set(session.frames.frames_repeated);
    frames_->duplicate.set(session.frames.frames_duplicate);
    frames_->refused.set(session.frames.frames_refused);
  }
  reserved_.set(static_cast<double>(counters.reserved_bps));
  congestion_delay_.set(static_cast<double>(host.congestion_delay()));
  for (std::size_t i = 0; i < schemes_.size(); ++i) {
    schemes_[i].set(congestion_schemes()[i].name == host.congestion() ? 1 : 0);
  }
  const std::uint64_t used =
      std::min<std::uint64_t>(counters.best_effort_outstanding, credit_limit_);
  credits_.set(static_cast<double>(credit_limit_ - used));
}

std::optional<emu::Counter> Publisher::counter_of(emu::Metric metric) const {
  if (metric == Metric::port_link_downed) return link_downed_;
  if (metric == Metric::port_link_recovered) return link_recovered_;
  const auto found = std::ranges::find(copied_, metric, &Copied::metric);
  if (found == copied_.end()) return {};
  return found->counter;
}

std::optional<std::uint64_t> Publisher::port_file(std::string_view name) const {
  const auto file = std::ranges::find(emu::kPortFiles, name, &emu::PortFile::name);
  if (file == emu::kPortFiles.end() || !file->metric) return {};
  const auto counter = counter_of(*file->metric);
  if (!counter) return {};
  return counter->value();
}

}  // namespace hca
