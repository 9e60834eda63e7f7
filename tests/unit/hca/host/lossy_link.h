// Hosts joined by a link that may lose, repeat, delay and reorder packets, from one seed: the
// network as one struct of options. Time jumps to the next thing that happens.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "emu/base/prng.h"
#include "emu/packet/parse.h"
#include "hca/host/host.h"
#include "tests/sim/app.h"

namespace test {

struct LinkOptions {
  std::uint64_t seed = 1;
  double loss = 0;
  double repeat = 0;
  double corrupt = 0;
  emu::Cycle delay_min = 50;
  emu::Cycle delay_max = 50;   // more than min: packets overtake one another
  std::uint32_t slots = 4096;  // packet buffers per node: back-pressure
  std::uint32_t trains = 0;    // the same of trains
  bool lends = false;          // payloads of trains stay with their sender
  emu::Verdict verdict = emu::Verdict::ack;
  bool answers = true;
};

struct Told : hca::HostEvents {
  std::vector<std::pair<hca::AsyncEvent, std::uint32_t>> asyncs;
  std::vector<hca::AdmissionOutcome> admissions;
  std::uint64_t completions = 0;
  std::uint64_t wakes = 0;
  std::vector<hca::Mad> mads;
  std::vector<hca::Trouble> troubles;
  std::function<void(hca::AsyncEvent)> on_async;
  void completion(hca::ClientId, std::uint32_t) override { ++completions; }
  void wake_cq(hca::ClientId, std::uint32_t) override { ++wakes; }
  void async(hca::ClientId, hca::AsyncEvent event, std::uint32_t number) override {
    asyncs.emplace_back(event, number);
    if (on_async) on_async(event);
  }
  void mad(emu::NodeId /*source*/, const hca::Mad& bytes) override { mads.push_back(bytes); }
  void admission(hca::ClientId, std::uint32_t, const hca::AdmissionOutcome& outcome) override {
    admissions.push_back(outcome);
  }
  void trouble(const hca::Trouble& trouble) override { troubles.push_back(trouble); }
  bool heard(hca::AsyncEvent event) const {
    return std::any_of(asyncs.begin(), asyncs.end(),
                       [event](const auto& told) { return told.first == event; });
  }
};

class Cluster {
 public:
  explicit Cluster(const LinkOptions& link, hca::HostOptions options = {}, int nodes = 2)
      : link_(link), prng_(link.seed) {
    options.class_of_sl.fill(emu::TrafficClass::best_effort);
    options.class_of_sl[1] = emu::TrafficClass::real_time;
    options.class_of_sl[15] = emu::TrafficClass::control;
    options.lanes_of_sl[1] = 0x7ff0;
    options.lanes_of_sl[15] = 1U << 15;
    options.nodes = static_cast<std::uint16_t>(nodes);
    for (int n = 0; n < nodes; ++n) {
      options.node = static_cast<emu::NodeId>(n);
      ports_.push_back(std::make_unique<Port>(*this, n));
      told_.push_back(std::make_unique<Told>());
      hosts_.push_back(
          std::make_unique<hca::Host>(options, memory_, *ports_.back(), *told_.back()));
    }
  }

  hca::Host& host(int n) { return *hosts_[static_cast<std::size_t>(n)]; }
  Told& told(int n) { return *told_[static_cast<std::size_t>(n)]; }
  sim::LocalMemory& memory() { return memory_; }
  emu::Cycle now() const { return now_; }
  std::vector<emu::TxDesc>& sent() { return sent_; }
  // Told of each packet or train that leaves.
  std::function<void(const emu::TxDesc&, std::span<const std::uint8_t>)> on_send;
  // And of each that was injected.
  std::function<void(const emu::TxDesc&)> on_injected;
  // What a node sends on these lanes (bit v) from now on stays at its wire, as if the arbiter never
  // took it, until it is let go.
  void hold_lanes(int node, std::uint16_t lanes) {
    held_lanes_[static_cast<std::size_t>(node)] = lanes;
  }
  std::size_t held(int node, unsigned lane) const {
    const auto found = held_.find({node, lane});
    return found == held_.end() ? 0 : found->second.size();
  }
  // The oldest ones.
  void let_go(int node, unsigned lane, std::size_t most = SIZE_MAX) {
    std::deque<Held>& held = held_[{node, lane}];
    for (; most > 0 && !held.empty(); --most) {
      leave(node, held.front().desc, std::move(held.front().bytes), held.front().lent);
      held.pop_front();
    }
  }
  // Before each arrival, which it may change.
  std::function<void(hca::Arrival&)> on_deliver;
  const std::vector<emu::ProbeBody>& probes() const { return probes_; }
  LinkOptions& link() { return link_; }
  std::uint64_t lost() const { return lost_; }
  std::uint64_t lent() const { return lent_; }  // payloads, ever

  // Runs until nothing more happens by itself, or until the cycle.
  void run(emu::Cycle until = emu::kNever) {
    quiet_until_ = {};
    for (int guard = 0; guard < 20'000'000; ++guard) {
      const std::size_t sent = advance();
      emu::Cycle next = events_.empty() ? emu::kNever : events_.begin()->first;
      for (auto& host : hosts_) next = std::min(next, host->next_event());
      if (sent > 0) next = std::min(next, now_);
      if (next == emu::kNever || next > until) {
        if (until != emu::kNever) now_ = until;
        return;
      }
      now_ = std::max(now_ + (sent == 0 && next <= now_ ? 1 : 0), next);
      deliver();
    }
  }

 private:
  // As hcad does it: a host that is quiet and was told nothing is not asked.
  std::size_t advance() {
    std::size_t sent = 0;
    quiet_until_.resize(hosts_.size());
    for (std::size_t n = 0; n < hosts_.size(); ++n) {
      if (now_ < quiet_until_[n]) continue;
      sent += hosts_[n]->advance(now_);
      quiet_until_[n] = hosts_[n]->quiet_until();
    }
    return sent;
  }

  struct Packet {
    int to;
    emu::TxDesc desc;
    int from;
    std::vector<std::uint8_t> bytes;
    bool injected;  // tells the sender that it left, instead of an arrival
    std::span<const std::uint8_t> lent;
  };

  struct Held {
    emu::TxDesc desc;
    std::vector<std::uint8_t> bytes;
    std::span<const std::uint8_t> lent;
  };

  struct Port : hca::PacketPort {
    Port(Cluster& owner, int number) : cluster(owner), node(number) {
      const std::uint32_t trains = owner.link_.trains * emu::kTrainSlots;
      memory.resize(owner.link_.slots + trains);
      for (std::uint16_t i = 0; i < owner.link_.slots; ++i) free.push_back(i);
      for (std::uint32_t i = 0; i < trains; i += emu::kTrainSlots) {
        free_trains.push_back(static_cast<std::uint16_t>(owner.link_.slots + i));
      }
    }
    bool reserve(hca::PacketSlot& slot) override { return take(free, 1, slot); }
    bool reserve_train(hca::PacketSlot& slot) override {
      return take(free_trains, emu::kTrainSlots, slot);
    }
    std::uint32_t slots() const override {
      return cluster.link_.slots +
             static_cast<std::uint32_t>(cluster.link_.trains * emu::kTrainSlots);
    }
    bool take(std::vector<std::uint16_t>& from, std::size_t slots_of_one, hca::PacketSlot& slot) {
      if (from.empty()) return false;
      slot.buffer = from.back();
      // Most of thousands are never used, and each by itself shows who writes beyond it.
      auto& bytes = memory[slot.buffer];
      if (!bytes) bytes = std::make_unique<std::uint8_t[]>(slots_of_one * emu::kPacketBytesMax);
      slot.bytes = bytes.get();
      from.pop_back();
      return true;
    }
    bool lend(const hca::PacketSlot& slot, std::span<const std::uint8_t> payload,
              std::uint8_t* home) override {
      if (cluster.link_.lends) lent[slot.buffer] = {payload, home};
      return cluster.link_.lends;
    }
    void bring_home() override {
      for (auto& [buffer, payload] : lent) std::ranges::copy(payload.first, payload.second);
      lent.clear();
      cluster.bring_home(node);
    }
    void cancel(std::uint16_t buffer) override {
      lent.erase(buffer);
      (buffer < cluster.link_.slots ? free : free_trains).push_back(buffer);
    }
    void send(std::span<const emu::TxDesc> packets) override {
      for (const emu::TxDesc& desc : packets) {
        const std::uint8_t* bytes = memory[desc.buffer].get();
        const auto found = lent.find(desc.buffer);
        cluster.take(node, desc, {bytes, bytes + emu::buffer_bytes(desc)},
                     found == lent.end() ? std::span<const std::uint8_t>{} : found->second.first);
        lent.erase(desc.buffer);  // the packet has a buffer of its own on its way
      }
    }
    Cluster& cluster;
    int node;
    std::vector<std::unique_ptr<std::uint8_t[]>> memory;  // [buffer] of those once reserved
    std::vector<std::uint16_t> free;
    std::vector<std::uint16_t> free_trains;
    std::map<std::uint16_t, std::pair<std::span<const std::uint8_t>, std::uint8_t*>> lent;
  };

  void bring_home(int node) {
    for (auto& [at, packet] : events_) {
      if (packet.from != node || packet.lent.empty()) continue;
      std::ranges::copy(packet.lent, &packet.bytes[emu::kTrainHeadBytes]);
      packet.lent = {};
    }
  }

  emu::Cycle delay() {
    return link_.delay_min +
           prng_.below(static_cast<std::uint32_t>(link_.delay_max - link_.delay_min + 1));
  }

  void take(int from, const emu::TxDesc& desc, std::vector<std::uint8_t> bytes,
            std::span<const std::uint8_t> lent) {
    sent_.push_back(desc);
    lent_ += lent.empty() ? 0 : 1;
    if (on_send && lent.empty()) on_send(desc, bytes);
    if (on_send && !lent.empty()) {
      std::vector<std::uint8_t> whole = bytes;
      std::ranges::copy(lent, &whole[emu::kTrainHeadBytes]);
      on_send(desc, whole);
    }
    if ((held_lanes_[static_cast<std::size_t>(from)] >> desc.vl_in & 1) != 0) {
      held_[{from, desc.vl_in}].push_back({desc, std::move(bytes), lent});
      return;
    }
    leave(from, desc, std::move(bytes), lent);
  }

  void leave(int from, const emu::TxDesc& desc, std::vector<std::uint8_t> bytes,
             std::span<const std::uint8_t> lent) {
    // One flit a cycle, whatever was handed over first: a worm does not overtake another.
    emu::Cycle& busy = busy_until_[static_cast<std::size_t>(from)];
    const emu::Cycle leaves = std::max({desc.launch_cycle, now_, busy}) + desc.flits;
    busy = leaves;
    events_.emplace(leaves, Packet{from, desc, from, {}, true, {}});
    if (desc.kind != emu::PacketKind::data) {
      probe(from, desc, bytes, leaves);
      return;
    }
    if (prng_.uniform() < link_.loss) {
      ++lost_;
      return;
    }
    if (prng_.uniform() < link_.corrupt) {
      bytes[prng_.below(static_cast<std::uint32_t>(bytes.size()))] ^= 0x40;
    }
    const int copies = prng_.uniform() < link_.repeat ? 2 : 1;
    for (int i = 0; i < copies; ++i) {
      events_.emplace(leaves + delay(), Packet{desc.dest, desc, from, bytes, false, lent});
    }
  }

  void probe(int from, const emu::TxDesc& desc, const std::vector<std::uint8_t>& bytes,
             emu::Cycle leaves) {
    if (desc.kind != emu::PacketKind::probe || !link_.answers) return;
    emu::ProbeBody body;
    std::memcpy(&body, bytes.data(), sizeof body);
    probes_.push_back(body);
    answers_.emplace(leaves + 100, std::pair(from, emu::Answer{body.connection,
                                                               leaves + 100,
                                                               link_.verdict == emu::Verdict::ack
                                                                   ? emu::kNoRouter
                                                                   : emu::RouterId{3},
                                                               link_.verdict,
                                                               {}}));
    events_.emplace(leaves + 100, Packet{from, desc, -1, {}, true, {}});
  }

  void deliver() {
    while (!events_.empty() && events_.begin()->first <= now_) {
      const auto [at, packet] = *events_.begin();
      events_.erase(events_.begin());
      quiet_until_ = {};  // of all: what the test does when it hears of this one may be any host's
      hca::Host& host = *hosts_[static_cast<std::size_t>(packet.to)];
      if (packet.from < 0) {
        while (!answers_.empty() && answers_.begin()->first <= now_) {
          const auto [to, answer] = answers_.begin()->second;
          answers_.erase(answers_.begin());
          hosts_[static_cast<std::size_t>(to)]->answered({&answer, 1}, now_);
        }
      } else if (packet.injected) {
        const emu::Injected injected{packet.desc.cookie, at,
                                     packet.desc.flits,  packet.desc.traffic_class,
                                     packet.desc.kind,   0};
        ports_[static_cast<std::size_t>(packet.to)]->cancel(packet.desc.buffer);
        if (on_injected) on_injected(packet.desc);
        host.injected({&injected, 1}, now_);
      } else {
        hca::Arrival arrival{};
        arrival.desc.head_cycle = at - packet.desc.flits;
        arrival.desc.arrival_cycle = at;
        arrival.desc.length = packet.desc.length;
        arrival.desc.more_packets = packet.desc.more_packets;
        arrival.desc.flits = packet.desc.flits;
        arrival.desc.src = static_cast<emu::NodeId>(packet.from);
        arrival.desc.traffic_class = packet.desc.traffic_class;
        arrival.bytes = packet.bytes.data();
        arrival.lent = packet.lent;
        if (on_deliver) on_deliver(arrival);
        host.receive({&arrival, 1}, now_);
      }
    }
  }

  LinkOptions link_;
  emu::Prng prng_;
  emu::Cycle now_ = 1000;
  std::vector<emu::Cycle> quiet_until_;  // of each host
  std::uint64_t lost_ = 0;
  std::uint64_t lent_ = 0;
  std::array<emu::Cycle, 16> busy_until_{};
  sim::LocalMemory memory_;
  std::multimap<emu::Cycle, Packet> events_;
  std::multimap<emu::Cycle, std::pair<int, emu::Answer>> answers_;
  std::array<std::uint16_t, 16> held_lanes_{};                 // by node
  std::map<std::pair<int, unsigned>, std::deque<Held>> held_;  // by node and lane
  std::vector<emu::TxDesc> sent_;
  std::vector<emu::ProbeBody> probes_;
  std::vector<std::unique_ptr<Port>> ports_;
  std::vector<std::unique_ptr<Told>> told_;
  std::vector<std::unique_ptr<hca::Host>> hosts_;
};

}  // namespace test
