// Everything that eight routers remember: a block. Plain data, sized at start; the stages
// (b1_decode.h ... b5_output.h) are functions over it, stepped back to front by block_step.h. Ports
// are numbered through the block, router * 8 + port; lanes as port * 16 + lane. What a cycle asks
// of every port are words of lanes; the rest is touched only where a flit is.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "emu/lane/port_lanes.h"
#include "emu/lane/row.h"
#include "emu/lane/words.h"
#include "fabric/route/routing.h"
#include "fabric/router/control_hook.h"
#include "fabric/router/network.h"
#include "hca/wire/message.h"

namespace fabric::blocks {

inline constexpr unsigned kBlockRouters = emu::kBlockPorts / emu::kPortsMax;
inline std::size_t blocks_of(const Graph& graph) {
  return (graph.routers.size() + kBlockRouters - 1) / kBlockRouters;
}
// A lane of a block, or kNoBlockLane.
using BlockLane = std::uint16_t;
inline constexpr BlockLane kNoBlockLane = 0xffff;

// Messages in the order in which they are in each lane. Each message has at least one flit there,
// but for the one that is just coming or going: 2^kPlanes are enough for a buffer of less.
template <int kPlanes>
struct LaneMessages {
  static constexpr unsigned kRoom = 1U << kPlanes;
  struct Fifo {
    std::uint8_t first = 0;
    std::uint8_t count = 0;
    std::array<hca::MessageId, kRoom> id;
  };
  std::array<Fifo, emu::kBlockLanes> of;

  hca::MessageId front(unsigned lane) const { return of[lane].id[of[lane].first]; }
  unsigned count(unsigned lane) const { return of[lane].count; }
  void push(unsigned lane, hca::MessageId message) {
    Fifo& fifo = of[lane];
    fifo.id[(unsigned{fifo.first} + fifo.count) % kRoom] = message;
    ++fifo.count;
  }
  void pop(unsigned lane) {
    Fifo& fifo = of[lane];
    fifo.first = static_cast<std::uint8_t>((fifo.first + 1U) % kRoom);
    --fifo.count;
  }
};

// Lanes whose heads have something to do.
struct LaneList {
  std::array<BlockLane, emu::kBlockLanes> lane;
  unsigned count = 0;
  void push(unsigned block_lane) { lane[count++] = static_cast<BlockLane>(block_lane); }
  const BlockLane* begin() const { return lane.data(); }
  const BlockLane* end() const { return lane.data() + count; }
  void sort() { std::sort(lane.data(), lane.data() + count); }
};

// Of one router since the energy window began.
struct RouterActivity {
  std::uint32_t heads = 0;
  std::uint32_t in_held = 0;   // flits in its input buffers then
  std::uint32_t out_held = 0;  // and in its output buffers
};

// What passing flits touch, but for their stamps.
template <int kPlanes>
struct alignas(64) HotLanes {
  emu::OutputLanes<kPlanes> out;
  emu::InputLanes<kPlanes> in;
  // Input lanes whose front message owns an output lane that has room.
  alignas(64) emu::LaneWords open{};
  std::array<emu::LinkPlace, emu::kBlockPorts> peer{};    // [port] where its link leads to
  std::array<std::uint32_t, emu::kBlockPorts> claim{};    // [output port] stage 4
  std::array<std::uint32_t, emu::kBlockPorts> arrived{};  // flits in the running energy window
  std::array<BlockLane, emu::kBlockLanes>
      target{};  // [input lane] output lane of its front message
  // Of an input lane that owns an output lane: the port of that, one bit of eight.
  alignas(64) std::array<std::uint8_t, emu::kBlockLanes> way{};
};

static_assert(sizeof(HotLanes<4>) / kBlockRouters <= 1024);

template <int kPlanes>
struct Block : HotLanes<kPlanes> {
  std::uint64_t to_hca = 0;  // bit p: port p leads to an HCA
  std::uint32_t inside = 0;  // flits in all buffers
  unsigned ports = 0;        // 8 * routers
  unsigned first_router = 0;

  // Touched at heads and tails only, and where an output lane becomes full.
  std::array<BlockLane, emu::kBlockLanes> owner;  // [output lane] input lane, or kNoBlockLane
  emu::LaneWords owned{};                         // output lanes that have an owner
  emu::FarFlits far_leaving;                      // continue out.leaving and in.left
  emu::FarFlits far_left;
  LaneList routing;      // heads that are due in stage 2
  LaneList arbitrating;  // and in stage 3
  // [output lane] first and last input lane that waits for it; [input lane] the next one that
  // waits.
  std::array<BlockLane, emu::kBlockLanes> wait_first;
  std::array<BlockLane, emu::kBlockLanes> wait_last;
  std::array<BlockLane, emu::kBlockLanes> wait_next;
  LaneMessages<kPlanes> in_messages;   // arrived heads whose tail has not crossed
  LaneMessages<kPlanes> out_messages;  // owners, and those whose tail has not left
  // Cold.
  std::array<RouterActivity, kBlockRouters> activity{};
  std::array<LaneCounters, emu::kBlockLanes> traffic_in{};
  std::array<LaneCounters, emu::kBlockLanes> traffic_out{};
  std::array<std::uint64_t, emu::kBlockPorts> wait_cycles{};
};

// What the stages of all routers share.
struct BlockWorld {
  hca::MessageTable& messages;
  const Routes& routes;
  ControlHook* hook;  // may be null
  unsigned fixed_classes;
  unsigned buffer;   // flits of a lane
  int alloc_iters;   // rounds of stage 4
  unsigned control;  // lanes that go strictly before all others
  unsigned yields;   // lanes of best effort, if classes have strict priority; else none
};

}  // namespace fabric::blocks
