#include "fabric/port/shm.h"

#include <algorithm>
#include <utility>

#include "emu/base/check.h"
#include "fabric/port/shm_session.h"

namespace fabric {

namespace {

constexpr std::size_t kBurst = 64;
// Sockets are looked at this often when the loop never sleeps.
constexpr std::uint64_t kSocketsEveryNs = 1'000'000;
// A node that does not read its injected events gets none of its packets taken meanwhile.
constexpr std::size_t kInjectedBacklog = 4096;

}  // namespace

// --- packets in -------------------------------------------------------------------------------

void ShmPort::receive(emu::Cycle now, Inbox& inbox) {
  for (ShmSession* session : live_) {
    take_back_released(*session);
    receive_from(*session, now, inbox);
  }
}

void ShmPort::take_back_released(ShmSession& session) {
  std::array<emu::Free, kBurst> burst;
  while (const std::size_t count = session.rx_free.pop(burst)) {
    for (std::size_t i = 0; i < count; ++i) {
      const PacketHandle packet = burst[i].buffer;
      const bool holds = memory_.valid(packet) && memory_.meta(packet).state == SlotState::holder &&
                         memory_.meta(packet).holder == session.node;
      if (!holds) {
        ++counters_[session.node].violations;
        session.fault("released a packet that it does not hold");
        return;
      }
      memory_.release(packet);
    }
    if (count < kBurst) return;
  }
}

void ShmPort::receive_from(ShmSession& session, emu::Cycle now, Inbox& inbox) {
  AttachCounters& counters = counters_[session.node];
  std::array<emu::TxDesc, kBurst> burst;
  for (std::size_t taken = 0; taken < kTurnPackets && session.reason.empty();) {
    if (session.injected.waiting() > kInjectedBacklog) return;
    if (session.answers.waiting() > kInjectedBacklog) return;
    const std::size_t count = session.tx.pop(burst);
    for (std::size_t i = 0; i < count; ++i) {
      const emu::TxDesc& desc = burst[i];
      const PacketHandle packet = handle_of(session.pool, desc.buffer);
      const char* wrong = descriptor_fault(desc, options_.rules, now);
      if (desc.buffer + emu::slots_of(desc) > options_.slots_per_node ||
          memory_.meta(packet).state != SlotState::sender) {
        wrong = "buffer";
      }
      if (wrong != nullptr) {
        ++counters.violations;
        session.fault(std::string("sent a descriptor with a wrong ") + wrong);
        return;
      }
      PacketMeta& meta = memory_.meta(packet);
      meta.cookie = desc.cookie;
      meta.launch_cycle = desc.launch_cycle;
      meta.length = desc.length;
      meta.flits = desc.flits;
      meta.more_packets = desc.more_packets;
      meta.source = session.node;
      meta.dest = desc.dest;
      meta.vl_in = desc.vl_in;
      meta.vl_out = desc.vl_out;
      meta.vtick = desc.vtick;
      meta.traffic_class = desc.traffic_class;
      meta.kind = desc.kind;
      meta.state = SlotState::fabric;
      counters.bytes_in += emu::buffer_bytes(desc);
      counters.packets_in += 1U + desc.more_packets;
      inbox.packets.push_back(packet);
    }
    session.in_fabric += count;
    taken += count;
    if (count < kBurst) return;
  }
}

// --- deliveries and events out ----------------------------------------------------------------

void ShmPort::deliver(emu::NodeId node, PacketHandle packet, const emu::RxDesc& desc) {
  PacketMeta& meta = memory_.meta(packet);
  meta.state = SlotState::holder;
  meta.holder = node;
  emu::RxDesc out = desc;
  out.buffer = packet;
  if (desc.more_packets != 0) memory_.hand_to(sessions_[node]->pool, packet);
  sessions_[node]->rx.add(out);
  counters_[node].packets_out += 1U + desc.more_packets;
  counters_[node].bytes_out += emu::buffer_bytes(desc);
}

void ShmPort::injected(emu::NodeId node, const emu::Injected& event) {
  sessions_[node]->injected.add(event);
}

void ShmPort::answer(emu::NodeId node, const emu::Answer& answer) {
  sessions_[node]->answers.add(answer);
}

void ShmPort::cut(emu::NodeId node, const std::string& reason) {
  if (sessions_[node] != nullptr) sessions_[node]->fault(reason);
}

emu::Cycle ShmPort::follow(emu::Cycle now, std::uint64_t host_ns) {
  emu::Cycle limit = emu::kNever;
  for (ShmSession* session : live_) {
    const emu::Cycle served = session->served->cycle.load(std::memory_order_acquire);
    limit = std::min(limit, session->follower.limit(options_.follow, served, now, host_ns));
    counters_[session->node].given_up += session->follower.take_given_up();
  }
  return limit;
}

void ShmPort::flush(emu::Cycle now) {
  for (ShmSession* session : live_) {
    bool pushed = session->rx.push();
    pushed |= session->injected.push();
    pushed |= session->answers.push();
    // Slots that come back wake a node only if it may be out of them.
    const std::size_t lacking = session->in_fabric + session->tx_free.waiting();
    if (session->tx_free.push()) pushed |= lacking > options_.slots_per_node / 2;
    if (pushed && session->waker.wake()) {
      ++counters_[session->node].wakeups;
      session->follower.woken(session->served->cycle.load(std::memory_order_relaxed), now);
    }
    if (session->rx.waiting() != 0) {
      auto& most = counters_[session->node].backlog_max;
      most = std::max<std::uint64_t>(most, session->rx.waiting());
    }
  }
}

// --- sleeping ---------------------------------------------------------------------------------

bool ShmPort::prepare_sleep() {
  for (ShmSession* session : live_) session->sleeper.prepare_sleep();
  for (ShmSession* session : live_) {
    if (!session->tx.empty() || !session->rx_free.empty()) {
      for (ShmSession* other : live_) other->sleeper.cancel_sleep();
      return false;
    }
  }
  return true;
}

bool ShmPort::end_sleep(bool readable) {
  bool by_packets = false;
  for (ShmSession* session : live_) {
    if (readable && session->sleeper.rung()) {
      by_packets = true;
      session->sleeper.awake();
    } else {
      session->sleeper.cancel_sleep();
    }
  }
  if (!readable || by_packets) return false;
  // A socket, a port beside this one, or a node that writes its eventfd for nothing.
  for (ShmSession* session : live_) session->sleeper.awake();
  service_due_ = true;
  return true;
}

std::uint64_t ShmPort::next_service_ns() const {
  // Packets that a node does not take, and connections that say nothing, are timed by service().
  const bool timed = !greetings_.empty() || !draining_.empty() ||
                     std::any_of(live_.begin(), live_.end(), [](ShmSession* session) {
                       return session->had_packets || session->rx.waiting() != 0;
                     });
  return timed ? serviced_ns_ + 10 * kSocketsEveryNs : ~std::uint64_t{0};
}

// --- who comes and goes -----------------------------------------------------------------------

void ShmPort::service(std::uint64_t host_ns, Inbox& inbox) {
  const std::uint64_t elapsed = host_ns - serviced_ns_;
  if (elapsed < kSocketsEveryNs && !service_due_) return;
  service_due_ = false;
  lose_broken(inbox);
  poll_sockets(host_ns, inbox);
  greet(host_ns, inbox);
  // A pause of the whole process is nobody's fault: long gaps count as 10 ms.
  const auto counted = std::min<std::uint64_t>(elapsed, 10 * kSocketsEveryNs);
  for (ShmSession* session : live_) {
    if (!progress(*session, counted)) session->fault("does not take its packets");
  }
  lose_broken(inbox);
  reap_drained();
  serviced_ns_ = host_ns;
}

void ShmPort::lose_broken(Inbox& inbox) {
  const std::vector<ShmSession*> all(live_);
  for (ShmSession* session : all) {
    if (session->rings_broken()) session->fault("wrote an impossible ring index");
    if (!session->reason.empty()) lose(session->node, session->reason, inbox);
  }
}

bool ShmPort::progress(ShmSession& session, std::uint64_t elapsed_ns) {
  // What it took, not how full its ring is: new packets fill the ring of who takes all the time.
  const std::uint64_t taken = session.rx.taken();
  const bool stuck = session.had_packets && taken == session.taken_before;
  session.stalled_ns = stuck ? session.stalled_ns + elapsed_ns : 0;
  session.taken_before = taken;
  session.had_packets = session.rx.in_ring() != 0;
  return session.stalled_ns < kStalledNs;
}

}  // namespace fabric
