// What fabricd does all day.
#include <unistd.h>

#include <algorithm>

#include "emu/base/log.h"
#include "emu/clock/doze.h"
#include "fabric/daemon/fabric.h"
#include "fabric/daemon/look.h"

namespace fabric {

namespace {

constexpr std::uint64_t kServiceNs = 1'000'000;  // who comes and goes, control
// The same while nothing happens: whoever comes wakes us. Nodes of other hosts have timers.
constexpr std::uint64_t kIdleServiceNs = 8'000'000;
constexpr std::uint64_t kPublishNs = 100'000'000;    // metrics
constexpr std::uint64_t kClockStateNs = 10'000'000;  // lag and dilation on the clock page
// After the last packet the loop keeps polling this long: an answer usually follows.
constexpr std::uint64_t kLingerNs = 300'000;
// Ahead of time: while a few packets are under way somebody waits for each of them, so the loop
// looks for a while, then naps shortly; half a quantum under load, because turns cost more than
// they bring then.
constexpr std::uint64_t kShortNapNs = 20'000;
constexpr std::uint64_t kFewPackets = 8;

}  // namespace

emu::Turn Fabric::turn(std::uint64_t host_ns) {
  emu::log_to(log_);
  if (!started_) pace_->start(network_->now(), host_ns);
  started_ = true;
  for (const auto& port : ports_) port->begin_turn(host_ns);
  follow(host_ns);
  skip_idle(host_ns);
  receive(host_ns);                  // packets in
  const bool ahead = step(host_ns);  // the engine, up to the clock
  tell_state();                      // how the routers look, if a scheme wants to know
  tell_notices();                    // what they tell sources, the same
  edge_->hand_out();                 // deliveries, injected events, answers
  flush();                           // packets out
  service(host_ns);                  // who comes and goes
  return ahead && inbox_.packets.empty() && !edge_->has_questions() ? rest(host_ns) : emu::Turn{};
}

emu::Result<void> Fabric::outcome() const {
  if (!pace_->hard_limit_exceeded()) return {};
  return emu::fail("clock: {} us behind real time, more than hard_limit_ms = {} allows",
                   pace_->lag_max_ns() / 1000, config_.clock.hard_limit_ms);
}

void Fabric::service(std::uint64_t host_ns) {
  const bool idle = remote_ == nullptr && active_ns_ < serviced_ns_;
  const bool busy = active_ns_ == host_ns || looking_;
  if (!busy) idle_ns_ = host_ns;
  if (host_ns - serviced_ns_ < (idle ? kIdleServiceNs : kServiceNs)) return;
  // Who was woken by this turn's packets may wait for this core: a while longer, not for ever.
  if (busy && serviced_ns_ != 0 && host_ns - idle_ns_ < kServiceNs) return;
  serviced_ns_ = host_ns;
  for (const auto& port : ports_) {
    port->service(host_ns, inbox_);
    handle_events(*port);
  }
  control_->service();
  if (host_ns - clock_state_ns_ >= kClockStateNs) {
    clock_state_ns_ = host_ns;
    clock_->publish_state(*pace_);
  }
  if (host_ns - published_ns_ >= kPublishNs) {
    published_ns_ = host_ns;
    publish();
    // Whoever removed the run directory knew of no daemon in it. What is at its place by now is
    // another's, so nothing is tidied up.
    if (control_->removed()) ::_exit(1);
    if (capture_ && !capture_->read_by_somebody(host_ns)) {
      edge_->watch(nullptr);
      capture_.reset();
    }
  }
}

void Fabric::follow(std::uint64_t host_ns) {
  limit_ = emu::kNever;
  for (const auto& port : ports_) limit_ = std::min(limit_, port->follow(network_->now(), host_ns));
}

void Fabric::skip_idle(std::uint64_t host_ns) {
  if (!network_->idle() || edge_->waiting() != 0) return;
  const emu::Cycle next = network_->next_event_cycle();
  // Virtual time jumps over what is between launches when it steps.
  if (config_.clock.mode == emu::ClockMode::virtual_ && next != emu::kNever) return;
  const emu::Cycle now = network_->now();
  const emu::Cycle to = std::min(next, pace_->idle_target(now, host_ns, limit_));
  if (to > now) network_->skip_to(to);
}

void Fabric::receive(std::uint64_t host_ns) {
  for (const auto& port : ports_) {
    port->receive(network_->now(), inbox_);
    handle_events(*port);
  }
  if (!inbox_.packets.empty()) {
    active_ns_ = host_ns;
    patience_.found(host_ns);
  }
  edge_->submit(inbox_);
}

bool Fabric::step(std::uint64_t host_ns) {
  const emu::Cycle now = network_->now();
  const emu::Cycle target =
      pace_->target(now, host_ns, network_->next_event_cycle() != emu::kNever, limit_);
  if (target > now) network_->run_until(target);
  arbitration_->follow(*admission_, *network_);
  power_->add(network_->activity());
  if (pace_->held()) return true;  // whoever is waited for needs the core more
  if (config_.clock.mode == emu::ClockMode::virtual_ &&
      network_->next_event_cycle() != emu::kNever) {
    return false;
  }
  return pace_->due_ns(network_->now() + 1) > host_ns;
}

void Fabric::flush() {
  // Time first: who reads a delivery must not see a clock before its arrival.
  clock_->publish(network_->now());
  for (const auto& port : ports_) port->flush(network_->now());
}

// The side band of ALO and Self-Tuned: a picture after each turn.
void Fabric::tell_state() {
  if (!state_wanted_) return;
  for (const hca::DeliveredEvent& event : network_->delivered()) delivered_flits_ += event.flits;
  side_band_->begin();
  for (int n = 0; n < network_->nodes(); ++n) {
    const auto node = static_cast<emu::NodeId>(n);
    const emu::RouterId router = network_->router_of(node);
    const int ports = std::min(network_->ports(router), static_cast<int>(emu::kStatePortsMax));
    for (int p = 0; p < ports; ++p) {
      const auto port = static_cast<emu::PortId>(p);
      side_band_->free_lanes(node, port, free_lanes(*network_, router, port));
    }
  }
  const Fullness sum =
      fullness(*network_, static_cast<int>(config_.network.vc_buf_size), config_.network.num_vcs);
  side_band_->end({network_->now(), delivered_flits_, sum.full, sum.buffers});
}

void Fabric::tell_notices() {
  if (notices_ == nullptr) return;
  notices_->look();
  for (const hca::DeliveredEvent& event : network_->delivered()) {
    if (event.kind == emu::PacketKind::data)
      notices_->arrived(event.handle, event.src, event.node, event.tail_cycle);
  }
  const bool by_message = config_.controls.notice == emu::NoticeWay::message;
  for (const emu::Notice& notice : notices_->news())
    side_band_->tell(by_message ? notices_->sender_of(notice) : notice.source, notice);
  notices_->heard();
}

emu::Turn Fabric::rest(std::uint64_t host_ns) {
  const bool few = network_->idle() || edge_->in_flight() <= kFewPackets;
  looking_ = few && patience_.look_again(host_ns);
  if (looking_) return {emu::Rest::look};
  // Nothing is under way between two turns where packets pass at once.
  const bool lingers = !config_.network.pass_through && host_ns - active_ns_ < kLingerNs;
  if (network_->idle() && !lingers) return {emu::Rest::sleep};
  const std::uint64_t nap_ns =
      few ? kShortNapNs : std::max(kShortNapNs, pace_->options().quantum_ns / 2);
  return {emu::Rest::nap, host_ns + nap_ns};
}

std::uint64_t Fabric::fall_asleep(std::uint64_t host_ns) {
  // An idle fabric still moves the clock page on: programs pace by it.
  std::uint64_t sleep_ns = emu::doze_ns(host_ns - active_ns_);
  if (edge_->next_launch() != emu::kNever) {
    const std::uint64_t due_ns = pace_->due_ns(edge_->next_launch());
    sleep_ns = std::min(sleep_ns, due_ns > host_ns ? due_ns - host_ns : 0);
  }
  for (const Port* port : polled_) {
    const std::uint64_t next_ns = port->next_service_ns();
    sleep_ns = std::min(sleep_ns, next_ns > host_ns ? next_ns - host_ns : 0);
  }
  bool quiet = true;
  for (asleep_ = 0; quiet && asleep_ < ports_.size(); ++asleep_)
    quiet = ports_[asleep_]->prepare_sleep();
  return quiet ? sleep_ns : 0;
}

void Fabric::wake_up(std::span<const int> rung) {
  bool readable = false;
  for (const int fd : rung) {
    const bool control = fd == control_->fd();
    if (control) serviced_ns_ = 0;
    readable |= !control;
  }
  for (std::size_t i = 0; i < asleep_; ++i) {
    if (ports_[i]->end_sleep(readable)) serviced_ns_ = 0;
  }
}

std::vector<int> Fabric::wake_fds() const {
  std::vector<int> fds = {control_->fd()};
  for (const auto& port : ports_) {
    const std::vector<int> wakers = port->wait_fds();
    fds.insert(fds.end(), wakers.begin(), wakers.end());
  }
  return fds;
}

void Fabric::handle_events(Port& port) {
  for (const auto& event : inbox_.events) {
    const auto& name = config_.nodes[event.node].name;
    if (event.kind == NodeEventKind::attached) {
      ++sessions_[event.node];
      port_of_node_[event.node] = &port;
      edge_->attached(event.node, port);
      emu::log_info(fmt::format("node {} attached", name));
    } else {
      edge_->lost(event.node);
      links_->lost(event.node);
      emu::log_warning(fmt::format("node {} lost: {}", name, event.reason));
    }
  }
  inbox_.events.clear();
}

void Fabric::publish() {
  if (network_->stuck() != stuck_) {
    stuck_ = network_->stuck();
    if (!stuck_.empty()) emu::log_error(stuck_);
  }
  power_->settle(network_->now());
  publisher_->publish({*network_, *edge_, *admission_, *pace_, *power_, *links_, notices_.get(),
                       port_of_node_, sessions_});
}

}  // namespace fabric
