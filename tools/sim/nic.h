// A network interface card in front of a wire half (RN section 3.3, ACP 3.2): doorbells, DMA from
// the host, buffers by lane, and what puts messages on the wire. In: messages as consumers ring for
// them, injections. Out: messages for the lanes, each with the cycle from which on it may leave.
// What arrives meets no cost: the receive DMA is faster than the link.
//   iba          doorbell queues by class, one DMA (the system bus); flits of lanes interleave by
//   the
//                scheduler of the wire half
//   qos          as iba, but two DMAs: the descriptor, then the data (PCI)
//   qos_message  as qos, but one message at a time on the wire, chosen by class, then VirtualClock;
//                each costs a DMA to be set up
//   traditional  one doorbell queue, one queue to the wire, first come, first served; three DMAs
#pragma once

#include <array>
#include <deque>
#include <functional>
#include <vector>

#include "tools/sim/point.h"
#include "tools/sim/workload.h"

namespace tools {

struct NicOptions {
  NicKind kind = NicKind::iba;
  double setup_cycles = 12.5;          // of a DMA
  double flit_cycles = 0.4;            // of a DMA's data, per flit
  std::uint32_t descriptor_flits = 4;  // 64 bytes
  std::uint32_t lane_flits = 8192;     // a lane's part of the local memory
  emu::Cycle quantum = 8;              // release() is called so often
};

class Nic {
 public:
  using Out = std::function<void(const FlitMessage&)>;
  explicit Nic(const NicOptions& options);

  void ring(const FlitMessage& message);
  // Everything that happens before `horizon`; what was rung for until then is known.
  void release(emu::Cycle horizon, const Out& out);
  // The tail left the wire half.
  void injected(const FlitMessage& message, emu::Cycle cycle);
  std::uint64_t waiting() const;

 private:
  bool one_by_one() const {
    return options_.kind == NicKind::traditional || options_.kind == NicKind::qos_message;
  }
  bool fetch(emu::Cycle horizon, const Out& out);
  void to_wire(emu::Cycle horizon, const Out& out);
  struct Doorbell {
    FlitMessage message;
    std::uint64_t rung = 0;  // the how manieth
  };
  // Of a class, by lane, so that full lanes cost nothing to pass over; a traditional card has one
  // queue of all, the first.
  struct Doorbells {
    std::array<std::deque<Doorbell>, emu::kVlCount> of;  // [lane]
    unsigned waiting = 0;                                // lanes that have one
  };
  static constexpr std::size_t kNowhere = emu::kVlCount;
  struct Place {
    std::size_t of_class;
    std::size_t lane;  // kNowhere: there is none
  };
  static std::size_t first_of(const Doorbells& queues);
  Place next_doorbell(emu::Cycle at) const;
  std::size_t next_ready(emu::Cycle at) const;

  struct Ready {
    FlitMessage message;
    emu::Cycle at;        // its last byte is in local memory
    std::uint64_t stamp;  // VirtualClock
  };
  NicOptions options_;
  std::array<Doorbells, emu::kClassCount> doorbells_;
  std::uint64_t rung_ = 0;
  double host_free_ = 0;  // the DMA from the host has done what it was asked for
  std::array<std::uint32_t, emu::kVlCount> held_{};  // flits in local memory, by lane
  // One message at a time on the wire.
  std::deque<Ready> ready_;  // in the order of coming
  bool wire_busy_ = false;
  emu::Cycle wire_free_ = 0;
  std::array<std::uint64_t, emu::kVlCount> clock_{};  // auxVC
};

}  // namespace tools
