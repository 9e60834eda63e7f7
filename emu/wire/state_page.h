// The side band of congestion schemes: <run>/fabric.state, written by fabricd after each turn while
// somebody wants it, mapped read-only by the hcads of its host. In: what the network looks like now
// (ALO, Self-Tuned), what routers tell sources (VCT, FECN, DCQCN). Out: a consistent picture of the
// one, the others one by one; who reads too late misses the oldest.
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
inline constexpr std::uint32_t kStatePageVersion = 2;
inline constexpr std::size_t kStatePortsMax = 16;  // of a router, from its first port on

// Of one node's router, as far as it concerns that node.
struct NodeView {
  std::array<std::uint16_t, kStatePortsMax> free_lanes{};  // by output port: lanes that nobody uses
  std::array<std::uint8_t, kNodesMax> useful_port{};       // by destination: on the way there
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
// useful_port is written once, before the first picture.
struct StatePage {
  std::uint32_t magic;
  std::uint32_t version;
  std::atomic<std::uint64_t> sequence;
  std::atomic<std::uint64_t> cycle;
  std::atomic<std::uint64_t> delivered_flits;
  std::atomic<std::uint32_t> full_buffers;
  std::atomic<std::uint32_t> buffers;
  std::uint64_t pad[3];
  std::array<std::array<std::atomic<std::uint16_t>, kStatePortsMax>, kNodesMax> free_lanes;
  std::array<std::array<std::atomic<std::uint8_t>, kNodesMax>, kNodesMax> useful_port;
  // Not under the sequence: each entry is written and read whole.
  std::array<NoticeRing, kNodesMax> notices;
};
static_assert(sizeof(StatePage) == 64 + 2048 + 4096 + 64 * 8 * (1 + kNoticesKept));

class StateWriter {
 public:
  static Result<StateWriter> open(const std::string& path);
  StateWriter(StateWriter&& other) noexcept;
  StateWriter& operator=(StateWriter&& other) noexcept;
  ~StateWriter();

  void set_useful(NodeId node, NodeId dest, PortId port) {
    page_->useful_port[node][dest].store(port, std::memory_order_relaxed);
  }
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
