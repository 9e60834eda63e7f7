// After construction nothing is allocated: a counting operator new watches a loaded network.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "emu/base/prng.h"
#include "fabric/router/network.h"

namespace {
std::atomic<long> allocations{0};

void* counted(std::size_t size, std::size_t alignment) {
  ++allocations;
  void* memory = std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
  if (memory == nullptr) std::abort();
  return memory;
}
}  // namespace

void* operator new(std::size_t size) { return counted(size, 16); }
void* operator new(std::size_t size, std::align_val_t alignment) {
  return counted(size, static_cast<std::size_t>(alignment));
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }

namespace fabric {
namespace {

long allocations_under_load(emu::SchedulerKind kind, TopologyKind topology) {
  NetworkSpec spec;
  spec.scheduler = kind;
  spec.topology = topology;
  spec.mesh_k = 3;
  spec.packets_per_node = 64;
  spec.weights.high.fill(3);
  spec.lane_vtick = default_lane_vticks(spec.lanes_of_class);
  const auto network = Network::make(spec).value();
  emu::Prng random(1);
  const auto nodes = static_cast<std::uint32_t>(network->nodes());
  const long before = allocations;
  for (int i = 0; i < 2000; ++i) {
    for (std::uint32_t n = 0; n < nodes; ++n) {
      hca::SendPacket packet;
      packet.dest = static_cast<emu::NodeId>(random.below(nodes));
      packet.flits = static_cast<std::uint16_t>(1 + random.below(40));
      packet.vl_in = packet.vl_out = static_cast<emu::Vl>(random.below(16));
      packet.launch = network->now() + random.below(100);
      if (random.below(10) == 0) packet.kind = emu::PacketKind::probe;
      network->submit(static_cast<emu::NodeId>(n), packet);  // full at times: the limit is met
    }
    network->step(20);
    if (i % 3 == 0) network->clear_events();
  }
  return allocations - before;
}

TEST(Allocation, NoneAfterStart) {
  for (int kind = 0; kind < emu::kSchedulerKindCount; ++kind) {
    EXPECT_EQ(allocations_under_load(static_cast<emu::SchedulerKind>(kind), TopologyKind::single),
              0);
    EXPECT_EQ(allocations_under_load(static_cast<emu::SchedulerKind>(kind), TopologyKind::mesh), 0);
  }
}

}  // namespace
}  // namespace fabric
