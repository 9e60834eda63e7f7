#include "tests/bench/attach/measure.h"

#include <rte_lcore.h>
#include <time.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <thread>

#include "emu/clock/host.h"

namespace bench {
namespace {

constexpr std::size_t kBurst = 32;
constexpr std::uint64_t kServiceNs = 200'000;

// fabricd's loop without an engine: counts what comes in, sends it back if asked to. A thread that
// DPDK knows, as fabricd's is: its packet pools have caches.
class Fabric {
 public:
  Fabric(fabric::Port& port, fabric::PacketMemory& memory, bool echo)
      : port_(port), memory_(memory), echo_(echo), thread_([this] { run(); }) {}
  ~Fabric() {
    stop_.store(true, std::memory_order_relaxed);
    thread_.join();
  }
  Fabric(const Fabric&) = delete;
  Fabric& operator=(const Fabric&) = delete;
  std::uint64_t count() const { return count_.load(std::memory_order_relaxed); }

 private:
  void run() {
    (void)rte_thread_register();
    while (!stop_.load(std::memory_order_relaxed)) turn(emu::host_now_ns());
    rte_thread_unregister();
  }
  void turn(std::uint64_t host_ns) {
    if (host_ns - serviced_ns_ >= kServiceNs) {
      serviced_ns_ = host_ns;
      port_.service(host_ns, inbox_);
    }
    const emu::Cycle now = host_ns / 320;
    port_.receive(now, inbox_);
    for (const fabric::PacketHandle packet : inbox_.packets) take(packet, now);
    count_.store(count() + inbox_.packets.size(), std::memory_order_relaxed);
    inbox_.packets.clear();
    inbox_.events.clear();
    port_.flush(now);
  }
  void take(fabric::PacketHandle packet, emu::Cycle now) {
    const fabric::PacketMeta& meta = memory_.meta(packet);
    if (!echo_ || !port_.attached(meta.source)) return memory_.release(packet);
    port_.deliver(meta.source, packet,
                  {now, now, 0, meta.length, meta.flits, meta.source, 0, meta.traffic_class, 0});
  }

  fabric::Port& port_;
  fabric::PacketMemory& memory_;
  const bool echo_;
  std::uint64_t serviced_ns_ = 0;
  std::atomic<std::uint64_t> count_{0};
  std::atomic<bool> stop_{false};
  fabric::Inbox inbox_;
  std::thread thread_;  // last: it uses the others
};

class Node {
 public:
  explicit Node(hca::Attachment& attachment) : attachment_(attachment) { bytes_.fill(0x5a); }
  void service() {
    const std::uint64_t now = emu::host_now_ns();
    if (now - serviced_ns_ < kServiceNs) return;
    serviced_ns_ = now;
    attachment_.service(now);
  }
  // As many packets as there are slots, up to a burst.
  std::size_t send(std::size_t wanted) {
    std::array<emu::TxDesc, kBurst> burst;
    std::size_t n = 0;
    while (n < wanted) {
      const auto slot = attachment_.acquire();
      if (!slot) break;
      std::memcpy(slot->bytes, bytes_.data(), kPacketBytes);
      burst[n++] = {sent_++,
                    0,
                    slot->buffer,
                    0,
                    kPacketBytes,
                    40,
                    0,
                    0,
                    0,
                    emu::TrafficClass::best_effort,
                    emu::PacketKind::data,
                    0};
    }
    if (n != 0) attachment_.send(std::span(burst).first(n));
    attachment_.flush();
    return n;
  }
  // Takes what has arrived; returns how many packets.
  std::size_t poll() {
    service();
    std::array<hca::Received, kBurst> got;
    const std::size_t n = attachment_.receive(got);
    for (std::size_t i = 0; i < n; ++i) attachment_.release(got[i].desc.buffer);
    attachment_.flush();
    return n;
  }

 private:
  hca::Attachment& attachment_;
  std::uint64_t serviced_ns_ = 0;
  std::uint64_t sent_ = 0;
  std::array<std::uint8_t, kPacketBytes> bytes_{};
};

}  // namespace

fabric::EdgeRules rules() {
  fabric::EdgeRules out;
  out.node_count = 1;
  out.node_names = {"n0"};
  out.lanes_of_class[0] = 0x8000;
  out.lanes_of_class[1] = 0x7ff0;
  out.lanes_of_class[2] = 0x000f;
  out.horizon_cycles = 1'000'000;
  return out;
}

RoundTrip percentiles(std::vector<std::uint64_t> samples) {
  if (samples.empty()) return {};
  std::ranges::sort(samples);
  const auto at = [&](double share) {
    return static_cast<double>(
               samples[static_cast<std::size_t>(share * static_cast<double>(samples.size() - 1))]) /
           1000;
  };
  return {at(0.5), at(0.99)};
}

bool attach(hca::Attachment& node, fabric::Port& port) {
  fabric::Inbox inbox;
  const std::uint64_t begin = emu::host_now_ns();
  for (std::uint64_t now = begin; now - begin < 5'000'000'000; now = emu::host_now_ns()) {
    node.service(now);
    port.service(now, inbox);
    port.receive(1, inbox);
    port.flush(1);
    if (node.state() == hca::AttachState::attached) return true;
  }
  return false;
}

double measure_throughput(hca::Attachment& attachment, fabric::Port& port,
                          fabric::PacketMemory& memory, const Effort& effort) {
  const Fabric fabric(port, memory, false);
  Node node(attachment);
  const std::uint64_t begin = emu::host_now_ns();
  std::uint64_t measured_from = 0;
  std::uint64_t count_from = 0;
  while (true) {
    const std::uint64_t now = emu::host_now_ns();
    if (measured_from == 0 && now - begin >= effort.throughput_ns / 5) {
      measured_from = now;
      count_from = fabric.count();
    }
    if (measured_from != 0 && now - measured_from >= effort.throughput_ns) {
      return static_cast<double>(fabric.count() - count_from) * 1e9 /
             static_cast<double>(now - measured_from);
    }
    for (int i = 0; i < 16; ++i) {
      node.service();
      node.send(kBurst);
    }
  }
}

Cost measure_cost(hca::Attachment& attachment, fabric::Port& port, fabric::PacketMemory& memory,
                  const Effort& effort) {
  const auto cpu_ns = [] {
    timespec t{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return static_cast<double>(t.tv_sec) * 1e9 + static_cast<double>(t.tv_nsec);
  };
  Node node(attachment);
  fabric::Inbox inbox;
  Cost cost;
  std::uint64_t packets = 0;
  const std::uint64_t wanted = effort.round_trips * 20;
  const std::uint64_t give_up = emu::host_now_ns() + 20'000'000'000;
  while (packets < wanted && emu::host_now_ns() < give_up) {
    const double begin = cpu_ns();
    attachment.service(emu::host_now_ns());
    for (std::size_t sent = 0; sent < 512;) {
      const std::size_t n = node.send(kBurst);
      if (n == 0) break;
      sent += n;
    }
    const double middle = cpu_ns();
    const std::uint64_t host_ns = emu::host_now_ns();
    port.service(host_ns, inbox);
    port.receive(host_ns / 320, inbox);
    for (const fabric::PacketHandle packet : inbox.packets) memory.release(packet);
    packets += inbox.packets.size();
    inbox.packets.clear();
    inbox.events.clear();
    port.flush(host_ns / 320);
    cost.node_ns += middle - begin;
    cost.fabric_ns += cpu_ns() - middle;
  }
  const auto n = static_cast<double>(std::max<std::uint64_t>(packets, 1));
  return {cost.node_ns / n, cost.fabric_ns / n};
}

RoundTrip measure_round_trip(hca::Attachment& attachment, fabric::Port& port,
                             fabric::PacketMemory& memory, const Effort& effort) {
  const Fabric fabric(port, memory, true);
  Node node(attachment);
  // What the throughput left on its way comes back first.
  const std::uint64_t begin = emu::host_now_ns();
  while (emu::host_now_ns() < begin + 200'000'000) node.poll();
  std::vector<std::uint64_t> samples;
  samples.reserve(effort.round_trips);
  const std::uint64_t give_up = begin + 20'000'000'000;
  while (samples.size() < effort.round_trips && emu::host_now_ns() < give_up) {
    node.service();
    const std::uint64_t asked = emu::host_now_ns();
    if (node.send(1) == 0) continue;
    while (node.poll() == 0 && emu::host_now_ns() < give_up) {
    }
    samples.push_back(emu::host_now_ns() - asked);
  }
  attachment.flush();
  return percentiles(std::move(samples));
}

}  // namespace bench
