// What hcad does all day.
#include <sched.h>
#include <unistd.h>

#include <algorithm>

#include <fmt/core.h>

#include "emu/base/log.h"
#include "emu/clock/doze.h"
#include "emu/clock/host.h"
#include "hca/daemon/node.h"

namespace hca {

namespace {

constexpr std::uint64_t kServiceNs = 1'000'000;  // programs, control, the session
// The same while nothing happens: whoever comes wakes us. A fabric on another host has timers.
constexpr std::uint64_t kIdleServiceNs = 8'000'000;
constexpr std::uint64_t kPublishNs = 100'000'000;      // metrics
constexpr std::uint64_t kLongestSleepNs = 20'000'000;  // without programs

}  // namespace

emu::Turn Node::turn(std::uint64_t host_ns) {
  emu::log_to(log_);
  attachment_->begin_turn(host_ns);
  tell_time();
  const emu::Cycle began = now_;
  std::size_t work = receive();                     // deliveries, injected events, answers
  const bool told = side_band_.tell(*host_, now_);  // how the routers look, if the scheme asks
  work += control_->doorbells(now_) ? 1U : 0U;      // what programs posted
  if (work != 0 || told || cm_->has_unsent() || now_ >= quiet_until_)
    work += transmit();  // timers, packets out
  attachment_->flush();
  if (!left_over_) attachment_->served(began);
  if (work != 0) active_ns_ = host_ns;
  service(host_ns, work != 0 || looking_);  // last: a packet waits for no program that comes
  emu::Turn turn = rest(work, host_ns);
  turn.woke = control_->woke();
  return turn;
}

void Node::tell_time() {
  now_ = std::max(now_, attachment_->now_cycle());
  if (now_ == told_) return;  // programs have the page's line
  told_ = now_;
  page()->now_ns.store(options_.cycle_time.ns(now_), std::memory_order_release);
  if (page()->waiters_look == 0) tell_cpu();
}

void Node::tell_cpu() {
  const auto cpu = static_cast<std::uint16_t>(::sched_getcpu() + 1);
  if (cpu == page()->works_on.load(std::memory_order_relaxed)) return;  // nearly always
  page()->works_on.store(cpu, std::memory_order_relaxed);
}

void Node::service(std::uint64_t host_ns, bool busy) {
  const bool idle = same_host() && active_ns_ < serviced_ns_;
  if (!busy) idle_ns_ = host_ns;
  if (host_ns - serviced_ns_ < (idle ? kIdleServiceNs : kServiceNs)) return;
  // Who was woken by this turn's work may wait for this core: a while longer, not for ever.
  if (busy && serviced_ns_ != 0 && host_ns - idle_ns_ < kServiceNs) return;
  serviced_ns_ = host_ns;
  quiet_until_ = 0;  // whatever is asked of the host half here
  attachment_->service(host_ns);
  notice_session();
  control_->service(now_);
  cm_->service(now_);
  if (mads_ != nullptr) mads_->service(host_ns);
  ctl_->service();
  if (host_ns - published_ns_ >= kPublishNs) {
    published_ns_ = host_ns;
    publish();
    // Whoever removed the run directory knew of no daemon in it. What is at its place by now is
    // another's, so nothing is tidied up.
    if (ctl_->removed()) ::_exit(1);
  }
}

void Node::publish() {
  const bool up = attachment_->state() == AttachState::attached;
  publisher_->publish(*host_, control_->client_count(), {up, session_, attachment_->frames()});
}

// Programs hear of the port before they see what was lost with it.
void Node::tell_port(bool up) {
  constexpr std::uint32_t kPortDown = 1;
  constexpr std::uint32_t kPortActive = 4;
  const std::uint32_t state = up ? kPortActive : kPortDown;
  if (page()->port_state.exchange(state, std::memory_order_acq_rel) == state) return;
  if (mads_ != nullptr) mads_->port_is(up);
  control_->port_event(up ? AsyncEvent::port_active : AsyncEvent::port_err);
  // To the subnet's administration the port is new: it is in no group (fabric/subnet/groups.h).
  if (up && !options_.roce) control_->port_event(AsyncEvent::client_reregister);
}

void Node::notice_session() {
  const bool up = attachment_->state() == AttachState::attached;
  if (up && same_host()) side_band_.follow_ways(*host_);
  // Attached anew between two looks: the port was down, too.
  if (up && session_ != 0 && attachment_->session() != session_) tell_port(false);
  if (!up && was_up_)
    emu::log_warning(fmt::format("no longer attached: {}", attachment_->reason()));
  was_up_ = up;
  tell_port(up);
  // What was under way is lost, and what is sent now goes nowhere: requests end by their retries.
  const bool dark = attachment_->link_down();
  if (dark && !dark_) host_->link_lost(now_);
  dark_ = dark;
  if (!up || attachment_->session() == session_) return;
  now_ = std::max(now_, attachment_->now_cycle());
  if (session_ != 0) {
    emu::log_warning("the fabric is back: what was under way is sent again");
    host_->fabric_restarted(now_);
  } else {
    emu::log_info("attached to the fabric");
  }
  session_ = attachment_->session();
  side_band_.close();  // of the fabric before
}

std::size_t Node::receive() {
  left_over_ = false;
  if (!attachment_->has_incoming()) return 0;
  const std::size_t packets = attachment_->receive(received_);
  const std::size_t injected = attachment_->injected(injected_);
  const std::size_t answers = attachment_->answers(answers_);
  left_over_ = packets == received_.size() || injected == injected_.size();
  now_ = std::max(now_, attachment_->now_cycle());
  if (injected != 0) host_->injected({injected_.data(), injected}, now_);
  if (answers != 0) host_->answered({answers_.data(), answers}, now_);
  if (packets != 0) {
    arrivals_.clear();
    for (std::size_t i = 0; i < packets; ++i) {
      const Received& packet = received_[i];
      arrivals_.push_back({packet.desc, packet.bytes, packet.lent});
      const emu::Cycle latency = packet.desc.arrival_cycle - packet.desc.head_cycle;
      publisher_->arrived(packet.desc.traffic_class, options_.cycle_time.ns(latency),
                          1U + packet.desc.more_packets);
    }
    host_->receive(arrivals_, now_);
    for (std::size_t i = 0; i < packets; ++i) attachment_->release(received_[i].desc.buffer);
    if (cm_->waiting()) cm_->service(now_);
  }
  naps_.count(packets);
  return packets + injected + answers;
}

std::size_t Node::transmit() {
  cm_->send_waiting();
  const std::size_t packets = host_->advance(now_);
  if (!port_->left().empty()) {
    host_->injected(port_->left(), now_);
    port_->clear_left();
  }
  naps_.count(packets);
  quiet_until_ = host_->quiet_until();
  return packets;
}

emu::Turn Node::rest(std::size_t work, std::uint64_t host_ns) {
  looking_ = false;
  if (!config_.network.pass_through && naps_.nap(host_ns, options_.cycle_time.ns(now_)) &&
      host_->next_event() > now_) {
    return {emu::Rest::nap, emu::host_now_ns() + naps_.nap_ns()};
  }
  if (work != 0) patience_.found(host_ns);
  looking_ = work != 0 || patience_.look_again(host_ns);
  if (!looking_) return {emu::Rest::sleep};
  return {work != 0 ? emu::Rest::none : emu::Rest::look};
}

std::uint64_t Node::fall_asleep(std::uint64_t host_ns) {
  asleep_attached_ = attachment_->state() == AttachState::attached;
  const std::uint64_t limit_ns = sleep_limit_ns(host_ns - active_ns_);
  if (!left_over_) attachment_->served(next_look(limit_ns));
  const bool quiet_programs = control_->prepare_sleep();
  const bool quiet_fabric = !asleep_attached_ || attachment_->prepare_sleep();
  return quiet_programs && quiet_fabric ? limit_ns : 0;
}

void Node::wake_up(std::span<const int> rung) {
  bool doorbell = false;
  bool readable = false;
  for (const int fd : rung) {
    doorbell |= fd == control_->doorbell_fd();
    readable |= fd == attachment_->fd();
    // Programs' requests wait for service().
    if (fd != control_->doorbell_fd() && fd != attachment_->fd()) serviced_ns_ = 0;
  }
  if (asleep_attached_ ? attachment_->end_sleep(readable) : readable) serviced_ns_ = 0;
  control_->awake(doorbell);
}

std::vector<int> Node::wake_fds() const {
  return {attachment_->fd(), control_->fd(), control_->doorbell_fd(), ctl_->fd()};
}

// Programs read emulated time from the node page, so with programs time waits for the next look.
emu::Cycle Node::next_look(std::uint64_t limit_ns) const {
  const emu::Cycle next = std::max(host_->next_event(), now_);
  if (control_->client_count() == 0) return next;
  return std::min(next, now_ + options_.cycle_time.cycle_at(limit_ns));
}

// Emulated time runs no faster than host time for long, so a timer that many emulated nanoseconds
// ahead is at least about as far away.
std::uint64_t Node::sleep_limit_ns(std::uint64_t idle_ns) const {
  const bool has_programs = control_->client_count() != 0;  // they pace by the node page
  const std::uint64_t most = has_programs ? emu::doze_ns(idle_ns) : kLongestSleepNs;
  const emu::Cycle next = host_->next_event();
  if (next == emu::kNever) return most;
  if (next <= now_) return std::min<std::uint64_t>(most, 50'000);  // waits for a slot or a credit
  return std::clamp<std::uint64_t>(options_.cycle_time.ns(next - now_), 10'000, most);
}

}  // namespace hca
