// Host's datapath as its callers see it: each function is the table of contents of a file here.
#include "hca/host/host.h"

#include <algorithm>
#include <cerrno>

#include "emu/base/prefetch.h"
#include "hca/host/state.h"

namespace hca {

namespace {

// Time stands still at worst. A caller whose clock ran backwards must not unsettle timers.
void tick(HostState& s, emu::Cycle now) { s.now_ = std::max(s.now_, now); }

// What the program wrote on its core, all of it at once: the QP's page and its next request.
void prefetch_posted(const Qp& qp) {
  emu::prefetch_to_write(&qp.page->rung);
  const std::uint8_t* slot = qp.send_slot(qp.sq_posted);
  emu::prefetch(slot);
  emu::prefetch(slot + emu::kCacheLine);
}

void ring_all(HostState& s, ClientId client) {
  for (auto& qp : s.qps_) {
    if (qp != nullptr && qp->client == client) ring_doorbell(s, *qp);
  }
}

}  // namespace

int Host::modify_qp(ClientId client, std::uint32_t qpn, const QpAttributes& attributes,
                    std::uint32_t mask, emu::Cycle now) {
  tick(*state_, now);
  Qp* qp = state_->find_qp(qpn);
  if (qp == nullptr || !owns(*qp, client)) return ENOENT;
  return modify(*state_, *qp, attributes, mask);
}

int Host::request_rate(ClientId client, std::uint32_t qpn, std::uint64_t rate_bps,
                       std::uint64_t peak_bps, emu::Cycle now) {
  tick(*state_, now);
  Qp* qp = state_->find_qp(qpn);
  if (qp == nullptr || qp->client != client) return ENOENT;
  return ask_rate(*state_, *qp, rate_bps, peak_bps);
}

void Host::set_controls(const HostControls& controls) {
  const bool other = state_->options_.controls.congestion_control != controls.congestion_control;
  state_->options_.controls = controls;
  if (other) choose_congestion(*state_);
  for (auto& qp : state_->qps_) {
    if (qp == nullptr || qp->credit_capacity == 0) continue;
    qp->page->credit_limited.store(controls.congestion_control ? 1 : 0, std::memory_order_release);
  }
}

bool Host::set_congestion(std::string_view scheme, CqLayout layout) {
  const auto known = std::ranges::find(congestion_schemes(), scheme, &CongestionScheme::name);
  if (known == congestion_schemes().end()) return false;
  state_->options_.congestion = known->name;
  state_->options_.completion_queues = layout;
  choose_congestion(*state_);
  return true;
}

std::string_view Host::congestion() const {
  const HostOptions& options = state_->options_;
  return options.controls.congestion_control ? options.congestion : "none";
}

Signal Host::congestion_needs() const { return state_->congestion_->needs(); }

void Host::notice(const emu::Notice& notice, emu::Cycle now) {
  tick(*state_, now);
  hear_notice(*state_, notice);
}

// As of the last advance(): nobody asks the scheme of a source that sends nothing.
emu::Cycle Host::congestion_delay() const {
  return state_->congestion_->delay_cycles(state_->now_);
}

void Host::set_ways(std::vector<PortMask> ports, std::span<const std::uint8_t> hops) {
  HostState& s = *state_;
  s.options_.useful_ports = std::move(ports);
  if (s.congestion_->needs() == Signal::state) choose_congestion(s);
  // Round links that are down it may be farther than any node was: that takes all power there is.
  const auto affordable = [&s](std::uint8_t links) {
    return s.options_.energy.packet_pj(links, s.options_.packet_flits) <= s.power_budget_pj_;
  };
  for (std::size_t n = 0; n < std::min(hops.size(), s.options_.hops_to.size()); ++n) {
    std::uint8_t links = hops[n];
    while (links > 0 && !affordable(links)) --links;
    s.options_.hops_to[n] = links;
  }
}

void Host::fabric_state(const FabricState& state, emu::Cycle now) {
  tick(*state_, now);
  state_->congestion_->fabric_state(state, state_->now_);
}

void Host::doorbells(ClientId client, emu::Cycle now) {
  HostState& s = *state_;
  tick(s, now);
  Caller& caller = s.clients_[client];
  if (!caller.open) return;
  if (const Qp* qp = s.qp_or_null(caller.rang)) prefetch_posted(*qp);
  DoorbellPage& page = *caller.doorbells;
  const std::uint32_t tail = page.tail.load(std::memory_order_acquire);
  if (tail - caller.head > kDoorbellEntries) {  // nonsense: take every QP to have been rung
    ++s.counters_.ring_faults;
    caller.head = tail;
    ring_all(s, client);
  }
  while (caller.head != tail) {
    const std::uint32_t entry = caller.head++ % kDoorbellEntries;
    const std::uint32_t number =
        std::atomic_ref<std::uint32_t>(page.qp_num[entry]).load(std::memory_order_relaxed);
    Qp* qp = s.find_qp(number);
    if (qp == nullptr || qp->client != client) continue;
    caller.rang = qp->slot;
    ring_doorbell(s, *qp);
  }
  page.head.store(caller.head, std::memory_order_release);
  if (page.overflow.load(std::memory_order_relaxed) != 0) {
    page.overflow.store(0, std::memory_order_seq_cst);
    ring_all(s, client);
  }
  settle(s);
}

void Host::receive(std::span<const Arrival> arrivals, emu::Cycle now) {
  tick(*state_, now);
  receive_all(*state_, arrivals);
}

void Host::injected(std::span<const emu::Injected> events, emu::Cycle now) {
  tick(*state_, now);
  for (const emu::Injected& event : events) packet_injected(*state_, event);
  open_lanes(*state_);
  settle(*state_);
}

void Host::answered(std::span<const emu::Answer> answers, emu::Cycle now) {
  tick(*state_, now);
  for (const emu::Answer& answer : answers) probe_answered(*state_, answer);
}

std::size_t Host::advance(emu::Cycle now) {
  HostState& s = *state_;
  tick(s, now);
  s.calendar_.advance(s.now_);
  s.best_effort_calendar_.advance(s.now_);
  deliver_loop(s);
  probe_timers(s);
  run_timers(s);
  const std::size_t sent = transmit(s);
  settle(s);
  s.counters_.best_effort_outstanding = s.best_effort_out_;
  return sent;
}

emu::Cycle Host::next_event() const { return next_wake(*state_); }
emu::Cycle Host::quiet_until() const { return is_queued(*state_) ? 0 : next_wake(*state_); }

void Host::link_lost(emu::Cycle now) {
  HostState& s = *state_;
  tick(s, now);
  s.best_effort_out_ = 0;
  empty_lanes(s);
  s.congestion_->restart();
  s.congestion_turn_ = !s.congestion_turn_;
  s.slots_blocked_ = false;
  for (auto& qp : s.qps_) {
    if (qp == nullptr || qp->in_wire == 0) continue;
    // What was in the wire is lost, but it did leave: credits return, UD sends complete.
    s.counters_.packets_discarded += qp->in_wire;
    const std::uint64_t cookie = qp->number | std::uint64_t{qp->epoch} << 32 | 1ull << 24;
    while (qp->first_in_wire > 0) qp_injected(s, cookie);
    qp->in_wire = 0;
    while (qp->questions_in_wire > 0) question_left(s, *qp);
  }
  settle(s);
}

void Host::fabric_restarted(emu::Cycle now) {
  link_lost(now);
  renew_bookings(*state_);
}

const HostCounters& Host::counters() const { return state_->counters_; }
ObjectCounts Host::objects() const {
  const HostState& s = *state_;
  const auto count = [](const auto& table, auto there) {
    return static_cast<std::uint32_t>(std::ranges::count_if(table, there));
  };
  return {.pds = count(s.pds_, [](const Pd& pd) { return pd.used; }),
          .mrs = count(s.mrs_, [](const Mr& mr) { return mr.key != 0; }),
          .cqs = count(s.cqs_, [](const Cq& cq) { return cq.used; }),
          .srqs = count(s.srqs_, [](const Srq& srq) { return srq.used; }),
          .qps = count(s.qps_, [](const auto& qp) { return qp != nullptr; })};
}
std::array<std::uint32_t, kQpStates> Host::qps_by_state() const {
  std::array<std::uint32_t, kQpStates> count{};
  for (const auto& qp : state_->qps_) {
    if (qp != nullptr) ++count[static_cast<std::size_t>(qp->state)];
  }
  return count;
}
const HostOptions& Host::options() const { return state_->options_; }

bool Host::idle() const {
  const HostState& s = *state_;
  for (const auto& qp : s.qps_) {
    if (qp == nullptr || qp->state == QpState::err) continue;
    if (qp->sq_done != qp->sq_posted || !qp->responses_empty() || qp->in_wire > 0) return false;
  }
  return s.loop_sent_ == s.loop_delivered_ && s.left_responses_.empty();
}

}  // namespace hca
