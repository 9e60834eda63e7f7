// Peak power where packets enter the fabric (ACP section 5): before a packet leaves its HCA, its
// energy must fit the HCA's budget, which it holds until it has left and has been paid. HCAs book
// by launch times and ahead of time (hca/host/power.h), and what they booked in time passes here at
// its launch. But a program or an HCA that the host held up hands on what should have left long
// ago, and where that fills a link, best effort is held up behind it, whose energy its HCA counts
// as paid: when the way is free it would leave all at once. Here both are known: what comes late
// counts from now, and what has not left still holds its energy. In: packets in any order, what has
// left. Out: the same packets with the cycles in which they leave. Pure state; asked by the edge
// before each stretch of the engine.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <vector>

#include "emu/base/units.h"
#include "emu/config/config.h"
#include "hca/wire/packet.h"

namespace fabric {

// What an HCA's power pays in so many cycles, and best effort's part of that power in so many. The
// same as the HCA books by.
struct PowerBudget {
  std::uint64_t energy = 0;  // in the units of flit_energy
  emu::Cycle cycles = 1;
  emu::Cycle best_effort_cycles = 1;
  emu::Cycle late_cycles = 0;  // so much longer a packet holds its energy that leaves late
};

struct PowerGateOptions {
  bool on = false;
  std::vector<PowerBudget> budgets;              // of each node
  std::vector<std::uint8_t> hops;                // [source * nodes + dest]
  std::array<std::uint64_t, 256> flit_energy{};  // by hops: links between routers on its way
  // Acknowledgements have no launch time and are in time whenever they come; they have so many
  // flits at most.
  std::uint16_t answer_flits = 0;
  emu::Cycle shift_cycles = 0;  // by which HCAs move real time at most for the sake of power
};
PowerGateOptions power_gate_options(const emu::Config& config);

class PowerGate {
 public:
  struct Passed {
    emu::NodeId source;
    hca::SendPacket packet;
  };

  explicit PowerGate(const PowerGateOptions& options);

  // Whether such a packet has to come by here.
  bool meters(const hca::SendPacket& packet) const {
    return options_.on && packet.kind == emu::PacketKind::data &&
           packet.traffic_class != emu::TrafficClass::control;
  }
  // A metered packet; `order` rises, and packets of a lane that are due at once keep to it.
  void take(emu::NodeId source, const hca::SendPacket& packet, emu::Cycle now);
  void left(const hca::InjectedEvent& event);
  // The engine stands at `now` and every packet that has left by then was told. Appends to `out`
  // what leaves before the returned cycle, at most `until`: so far the engine may go before this
  // is asked again.
  emu::Cycle pass(emu::Cycle now, emu::Cycle until, std::vector<Passed>& out);

  // The earliest cycle at which a packet here is due; kNever: there is none. It may be over.
  emu::Cycle next() const;
  // Packets that left later than they were due, and by how many cycles in all.
  std::uint64_t held_back() const { return held_back_; }
  std::uint64_t held_back_cycles() const { return held_back_cycles_; }

 private:
  static constexpr std::uint32_t kNoSlot = ~std::uint32_t{0};

  // Who goes first: real time that came in time, real time that did not, best effort.
  enum class Rank : std::uint8_t { in_time, late, best_effort };

  struct Slot {  // a packet here
    hca::SendPacket packet;
    emu::Cycle due = 0;
    std::uint32_t next = kNoSlot;  // of its lane, or free
    Rank rank = Rank::in_time;
  };
  struct Due {
    emu::Cycle at;
    std::uint64_t order;
    std::uint32_t slot;
    // A heap has the largest in front.
    friend bool operator<(const Due& a, const Due& b) {
      return a.at != b.at ? a.at > b.at : a.order > b.order;
    }
  };
  struct Lane {  // packets that are due, first come first served
    std::uint32_t first = kNoSlot;
    std::uint32_t last = kNoSlot;
    // Of the packet before. HCAs give late packets for which they find no place the launch of the
    // one before: of several with the same launch only the first is in time.
    emu::Cycle due_before = 0;
    emu::Cycle taken_due = 0;  // of the packet that came last among those that are due soon
  };
  struct Holding {  // energy of a packet that has passed
    std::uint64_t energy;
    // When it passed; of one that was held up behind others when it left; of late ones later.
    emu::Cycle from;
    std::uint32_t handle;
    bool best_effort;
    bool gone = false;     // has left its HCA
    bool overdue = false;  // it has not, and the cycles that would have paid for it are over
  };
  struct Node {
    PowerBudget budget;
    std::vector<Due> future;  // heap
    std::array<Lane, emu::kVlCount> lanes{};
    std::array<std::uint32_t, 3> waiting{};  // lanes with a packet in front, a bit each, by rank
    unsigned turn = 0;                       // lane that comes next
    std::vector<Holding> holding;
    bool waits() const { return (waiting[0] | waiting[1] | waiting[2]) != 0; }
  };

  // True: something of this node is overdue.
  static bool look(Node& node, emu::Cycle now);
  void play(emu::NodeId source, emu::Cycle now, emu::Cycle until, std::vector<Passed>& out);
  void become_due(Node& node, emu::Cycle now);
  emu::Cycle may_leave(emu::NodeId source, const Slot& slot, emu::Cycle at) const;
  void leave(emu::NodeId source, std::uint32_t number, emu::Cycle at, std::vector<Passed>& out);
  void front_changed(Node& node, unsigned lane);
  static unsigned next_lane(const Node& node);
  // First cycle from `at` on at which the packet's energy fits; kNever: not before more has left.
  static emu::Cycle first_fit(const Node& node, std::uint64_t energy, bool best_effort,
                              emu::Cycle at);
  std::uint64_t energy_of(emu::NodeId source, const hca::SendPacket& packet) const;

  PowerGateOptions options_;
  std::vector<Node> nodes_;
  std::vector<Slot> slots_;
  std::uint32_t free_ = kNoSlot;
  std::uint64_t order_ = 0;
  std::uint64_t held_back_ = 0;
  std::uint64_t held_back_cycles_ = 0;
};

}  // namespace fabric
