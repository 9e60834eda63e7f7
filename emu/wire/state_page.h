// The side band of congestion schemes: <run>/fabric.state, written by fabricd after each turn while
// somebody wants it, mapped read-only by the hcads of its host. In: what the network looks like now
// (ALO, Self-Tuned), what routers tell sources (VCT, FECN, DCQCN), ways and their lengths, which
// change with the links in service. Out: a consistent picture of the first, notices one by one; who
// reads too late misses the oldest.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <optional>
#include <string>

#include "emu/base/result.h"
#include "emu/base/units.h"
#include "emu/wire/notice.h"

namespace emu {

inline constexpr std::uint32_t kStatePageMagic = 0x74536c46;  // "FlSt"
inline constexpr std::uint32_t kStatePageVersion = 4;
inline constexpr std::size_t kStatePortsMax = 16;  // of a router, from its first port on

// Of one node's router, as far as it concerns that node.
struct NodeView {
  std::array<std::uint16_t, kStatePortsMax> free_lanes{};  // by output port: lanes that nobody uses
};

struct StateReading {
  Cycle cycle = 0;  // of the network when it was taken
  std::uint64_t delivered_flits = 0;
  std::uint32_t full_buffers = 0;
  std::uint32_t buffers = 1;
};

// Notices for the HCA of a node to act on or, where they travel as messages, to pass on.
inline constexpr std::size_t kNoticesKept = 128;
struct NoticeRing {
  std::atomic<std::uint64_t> told;  // since the page was made
  // Notice i lies at i % kNoticesKept: low half of i, source (8 bits), destination (16), kind (8).
  std::array<std::atomic<std::uint64_t>, kNoticesKept> entries;
};

// One writer (fabricd). Everything behind `sequence` is read under it: odd while it is written.
// Ways are not: each entry is whole, and `ways` is raised when all are there.
struct StatePage {
  std::uint32_t magic;
  std::uint32_t version;
  std::atomic<std::uint64_t> sequence;
  std::atomic<std::uint64_t> cycle;
  std::atomic<std::uint64_t> delivered_flits;
  std::atomic<std::uint32_t> full_buffers;
  std::atomic<std::uint32_t> buffers;
  std::atomic<std::uint64_t> ways;  // changes of useful_ports and hops
  std::uint64_t pad[2];
  std::array<std::array<std::atomic<std::uint16_t>, kStatePortsMax>, kNodesMax> free_lanes;
  std::array<std::array<std::atomic<std::uint64_t>, kNodesMax>, kNodesMax> useful_ports;
  std::array<std::array<std::atomic<std::uint8_t>, kNodesMax>, kNodesMax> hops;
  // Not under the sequence: each entry is written and read whole.
  std::array<NoticeRing, kNodesMax> notices;
};
static_assert(sizeof(StatePage) == 64 + 2048 + (8 + 1) * 4096 + 64 * 8 * (1 + kNoticesKept));

class StateWriter {
 public:
  static Result<StateWriter> open(const std::string& path);
  StateWriter(StateWriter&& other) noexcept;
  StateWriter& operator=(StateWriter&& other) noexcept;
  ~StateWriter();

  // From the node's router out by any of `ports`, a bit each, over `hops` links between routers;
  // then ways_told().
  void set_way(NodeId node, NodeId dest, std::uint64_t ports, int hops) {
    page_->useful_ports[node][dest].store(ports, std::memory_order_relaxed);
    page_->hops[node][dest].store(static_cast<std::uint8_t>(hops), std::memory_order_relaxed);
  }
  void ways_told() { page_->ways.fetch_add(1, std::memory_order_release); }
  // A picture: begin, the parts that changed, end.
  void begin();
  void free_lanes(NodeId node, std::size_t port, std::uint16_t lanes) {
    page_->free_lanes[node][port].store(lanes, std::memory_order_relaxed);
  }
  void end(const StateReading& reading);
  // For the HCA of `node`; never waits.
  void tell(NodeId node, const Notice& notice);

 private:
  StateWriter() = default;
  StatePage* page_ = nullptr;
};

class StateReader {
 public:
  static Result<StateReader> open(const std::string& path);
  StateReader(StateReader&& other) noexcept;
  StateReader& operator=(StateReader&& other) noexcept;
  ~StateReader();

  // The cycle of the last picture: whether a new one is there.
  Cycle cycle() const { return page_->cycle.load(std::memory_order_acquire); }
  // False: it was being written again and again; try later.
  bool read(NodeId node, StateReading& reading, NodeView& view) const;
  // Raised whenever ways changed; 0: none was told yet.
  std::uint64_t ways() const { return page_->ways.load(std::memory_order_acquire); }
  std::uint8_t hops(NodeId node, NodeId dest) const {
    return page_->hops[node][dest].load(std::memory_order_relaxed);
  }
  std::uint64_t useful_ports(NodeId node, NodeId dest) const {
    return page_->useful_ports[node][dest].load(std::memory_order_relaxed);
  }
  // How many notices the HCA of `node` was told so far.
  std::uint64_t told(NodeId node) const {
    return page_->notices[node].told.load(std::memory_order_acquire);
  }
  // The notice of that number, from 0 on; none: there are so many newer ones that it is gone.
  // Source, destination and kind are known, the cycle and the router are not.
  std::optional<Notice> notice(NodeId node, std::uint64_t number) const;

 private:
  StateReader() = default;
  const StatePage* page_ = nullptr;
};

}  // namespace emu
