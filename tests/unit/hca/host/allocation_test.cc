// After objects are made, nothing is allocated on a packet's way: a counting operator new watches
// two hosts under steady traffic of every kind, a loss now and then, all controls on.
#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <vector>

#include "hca/host/host.h"
#include "tests/sim/app.h"
#include "tests/unit/allocations.h"

namespace {

constexpr std::size_t kSlots = 512;
constexpr std::size_t kBytes = 64 * 1024;
constexpr int kDepth = 16;
constexpr std::uint32_t kQkey = 0x1234;

// What a host hands over stays here until carry() brings it to the other.
struct Wire : hca::PacketPort {
  Wire() : memory(kSlots * emu::kPacketBytesMax) {
    sent.reserve(kSlots);
    for (std::uint16_t i = 0; i < kSlots; ++i) free[i] = i;
  }
  bool reserve(hca::PacketSlot& slot) override {
    if (free_count == 0) return false;
    slot.buffer = free[--free_count];
    slot.bytes = &memory[slot.buffer * emu::kPacketBytesMax];
    return true;
  }
  std::uint32_t slots() const override { return kSlots; }
  void cancel(std::uint16_t buffer) override { free[free_count++] = buffer; }
  void send(std::span<const emu::TxDesc> packets) override {
    sent.insert(sent.end(), packets.begin(), packets.end());
  }
  std::vector<std::uint8_t> memory;
  std::vector<emu::TxDesc> sent;
  std::array<std::uint16_t, kSlots> free{};
  std::size_t free_count = kSlots;
};

struct Silent : hca::HostEvents {
  void completion(hca::ClientId, std::uint32_t) override {}
  void wake_cq(hca::ClientId, std::uint32_t) override {}
  void async(hca::ClientId, hca::AsyncEvent, std::uint32_t) override {}
  void admission(hca::ClientId, std::uint32_t, const hca::AdmissionOutcome&) override {}
};

hca::HostOptions options_of(int node) {
  hca::HostOptions options;
  options.node = static_cast<emu::NodeId>(node);
  options.nodes = 2;
  options.class_of_sl.fill(emu::TrafficClass::best_effort);
  options.class_of_sl[1] = emu::TrafficClass::real_time;
  options.lanes_of_sl[1] = 0x7ff0;
  // Enough that something moves, little enough that best effort waits.
  options.power_w =
      options.energy.packet_pj(0, 40) / 60 / static_cast<double>(options.cycle_time.cycle_ps);
  return options;
}

struct Node {
  explicit Node(int node) : host(options_of(node), memory, wire, silent), app(host) {
    bytes.resize(kBytes);
    constexpr std::uint32_t kAll =
        hca::kAccessLocalWrite | hca::kAccessRemoteWrite | hca::kAccessRemoteRead;
    mapped = app.reg(bytes.data(), kBytes, kAll, true);
    copied = app.reg(bytes.data(), kBytes, kAll, false);
    cq = app.make_cq(1024);
    const hca::QpCapacity capacity{kDepth, kDepth, 2, 2, 64};
    best_effort = app.make_qp(hca::QpType::rc, cq, cq, capacity);
    real_time = app.make_qp(hca::QpType::rc, cq, cq, capacity);
    datagrams = app.make_qp(hca::QpType::ud, cq, cq, capacity);
  }
  hca::Sge sge(const hca::MrKeys& keys, std::uint32_t length) const {
    return {reinterpret_cast<std::uint64_t>(bytes.data()), length, keys.lkey};
  }

  sim::LocalMemory memory;
  Wire wire;
  Silent silent;
  hca::Host host;
  std::vector<std::uint8_t> bytes;
  sim::App app;  // ends before its bytes do
  hca::MrKeys mapped;
  hca::MrKeys copied;
  sim::Completions cq;
  sim::Queue best_effort;
  sim::Queue real_time;
  sim::Queue datagrams;
};

class Scene {
 public:
  Scene() {
    for (const int n : {0, 1}) {
      Node& me = nodes_[static_cast<std::size_t>(n)];
      Node& other = nodes_[static_cast<std::size_t>(1 - n)];
      sim::Path path;
      path.dest = static_cast<emu::NodeId>(1 - n);
      path.dest_qpn = other.best_effort.number;
      EXPECT_EQ(me.app.connect(me.best_effort, path, now_), 0);
      path.dest_qpn = other.real_time.number;
      path.sl = 1;
      EXPECT_EQ(me.app.connect(me.real_time, path, now_), 0);
      EXPECT_EQ(me.app.ready_ud(me.datagrams, kQkey, now_), 0);
    }
  }

  // One turn of both; every 97th packet is lost.
  void turn() {
    for (const int n : {0, 1}) post(nodes_[static_cast<std::size_t>(n)], 1 - n);
    for (Node& node : nodes_) node.app.ring(now_);
    for (Node& node : nodes_) node.host.advance(now_);
    carry(nodes_[0], nodes_[1]);
    carry(nodes_[1], nodes_[0]);
    for (Node& node : nodes_) {
      hca::Cqe cqe;
      while (sim::App::poll(node.cq, cqe)) {
        ++completed_;
        if (cqe.status != hca::WcStatus::success) ++failed_;
      }
    }
    now_ += 1000;
  }
  long completed() const { return completed_; }
  long failed() const { return failed_; }
  std::uint64_t repeated() const {
    return nodes_[0].host.counters().packets_retransmitted +
           nodes_[1].host.counters().packets_retransmitted;
  }
  std::uint64_t power_waits() const { return nodes_[0].host.counters().power_waits; }

 private:
  // As much as the queues take (ENOMEM else).
  void post(Node& me, int other) {
    Node& peer = nodes_[static_cast<std::size_t>(other)];
    const hca::Sge into = me.sge(me.copied, 4096);
    for (sim::Queue* queue : {&me.best_effort, &me.real_time, &me.datagrams}) {
      (void)me.app.post_recv(*queue, 1, {&into, 1});
    }
    const hca::Sge piece = me.sge(me.mapped, 2000);
    const hca::Sge copy = me.sge(me.copied, 3000);
    const auto there = reinterpret_cast<std::uint64_t>(peer.bytes.data());
    (void)me.app.post(me.best_effort, {.sges = {&copy, 1}});
    (void)me.app.post(me.best_effort, {.opcode = hca::WrOpcode::rdma_write,
                                       .sges = {&piece, 1},
                                       .remote_addr = there,
                                       .rkey = peer.mapped.rkey});
    (void)me.app.post(me.best_effort, {.opcode = hca::WrOpcode::rdma_read,
                                       .sges = {&piece, 1},
                                       .remote_addr = there,
                                       .rkey = peer.copied.rkey});
    (void)me.app.post(me.real_time, {.sges = {&piece, 1},
                                     .launch_ns = emu::CycleTime{}.ns(now_ + 2000),
                                     .launch_span_ns = 300'000});
    const hca::Sge small = me.sge(me.mapped, 500);
    (void)me.app.post(me.datagrams, {.sges = {&small, 1},
                                     .remote_qpn = peer.datagrams.number,
                                     .remote_qkey = kQkey,
                                     .dlid = emu::lid_of(static_cast<emu::NodeId>(other))});
  }

  void carry(Node& from, Node& to) {
    for (const emu::TxDesc& desc : from.wire.sent) {
      const emu::Injected injected{desc.cookie, now_, desc.flits, desc.traffic_class, desc.kind, 0};
      from.host.injected({&injected, 1}, now_);
      hca::Arrival arrival{};
      arrival.desc.head_cycle = now_;
      arrival.desc.arrival_cycle = now_ + desc.flits;
      arrival.desc.length = desc.length;
      arrival.desc.flits = desc.flits;
      arrival.desc.src = from.host.options().node;
      arrival.desc.traffic_class = desc.traffic_class;
      arrival.bytes = &from.wire.memory[desc.buffer * emu::kPacketBytesMax];
      if (++carried_ % 97 != 0) to.host.receive({&arrival, 1}, now_);
      from.wire.free[from.wire.free_count++] = desc.buffer;
    }
    from.wire.sent.clear();
  }

  std::array<Node, 2> nodes_{Node(0), Node(1)};
  emu::Cycle now_ = 1000;
  long completed_ = 0;
  long failed_ = 0;
  std::uint64_t carried_ = 0;
};

TEST(Allocation, NoneOnAPacketsWay) {
  const auto scene = std::make_unique<Scene>();
  for (int i = 0; i < 50; ++i) scene->turn();
  const long completed = scene->completed();
  const long before = test::allocations();
  for (int i = 0; i < 2000; ++i) scene->turn();
  EXPECT_EQ(test::allocations() - before, 0);
  EXPECT_GT(scene->completed() - completed, 2000);
  EXPECT_EQ(scene->failed(), 0);
  EXPECT_GT(scene->repeated(), 10u);
  EXPECT_GT(scene->power_waits(), 100u);
}

}  // namespace
