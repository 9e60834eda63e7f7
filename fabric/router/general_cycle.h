// One cycle of one router of the general engine: five stages, called from back to front by
// step_router. Stages 1, 2, 3, 5 in general_stages.h, 4 in general_cross.h, what interrupted
// messages do in general_preempt.h.
#pragma once

#include <bit>

#include "fabric/router/general_design.h"

namespace fabric::general {

template <class Bits>
unsigned first_of(Bits bits) {
  return static_cast<unsigned>(std::countr_zero(bits));
}

// Sets or clears a bit of a port's mask, and the port's bit in the router's.
template <class Bits>
void set_bit(Bits& bits, unsigned i, PortBits& ports, unsigned port) {
  bits |= Bits{1} << i;
  ports |= port_bit(port);
}
template <class Bits>
void clear_bit(Bits& bits, unsigned i, PortBits& ports, unsigned port) {
  bits &= ~(Bits{1} << i);
  if (bits == 0) ports &= ~port_bit(port);
}

// The queue has its output lane no longer.
inline void disown(Router& router, QueueAt me) {
  Port& port = router.ports[me.port];
  const InputQueue& q = port.in[me.queue];
  Port& out = router.ports[q.out_port];
  out.out[q.out_lane].owner = kNoQueue;
  out.owned &= ~lane_bit(q.out_lane);
  router.freed |= port_bit(q.out_port);
  clear_bit(port.active, me.queue, router.active, me.port);
  port.outranked &= ~queue_bit(me.queue);
  router.leads_to(me.port, q.out_port) &= ~queue_bit(me.queue);
}

// What an input port could send across: at most one queue a lane.
struct Wish {
  QueueBits queues;
  Able lanes;
  LaneBits let_go;  // those of them that a block in progress does not hold back
};
struct Proposal {
  Chosen chosen;
  Stamp urgency;  // against other inputs
  std::uint8_t in_port;
  std::uint8_t queue;
};

template <class Design>
class RouterCycle {
 public:
  RouterCycle(Router& router, World& world, emu::Cycle now)
      : r_(router), w_(world), d_(world), now_(now) {}

  void output();
  void cross();
  void arbitrate();
  void route();
  void decode();

 private:
  void take_credits(unsigned p, const Inbox& box);
  void send_from(PortBits ports);
  void send(unsigned p, unsigned lane);
  unsigned next_to_send(unsigned p, const Able& able);
  Able sendable(const Port& port) const;
  QueueBits could_cross(const Port& port) const;
  bool wish(unsigned p, Wish& wish) const;
  Chosen propose(Port& port, const Wish& wish, LaneBits open);
  unsigned crossings_max() const;
  void allocate();
  void cross_all_lanes();
  void move(unsigned p, unsigned queue);
  void worm_ended(unsigned p, unsigned queue);
  void count_message(unsigned p, const InputQueue& q, unsigned lane, hca::MessageId id);
  void join_line(unsigned p, unsigned queue);
  void grant(unsigned p, unsigned lane);
  void own(QueueAt me, unsigned p, unsigned lane);
  void reserve(unsigned p, unsigned queue);
  bool find_output(QueueAt me, std::array<LaneBits, kPortsMax>& claimed);
  void fall_asleep(QueueAt me, const hca::Message& message);
  void route_by_waiting(PortBits freed, std::array<LaneBits, kPortsMax>& claimed);
  QueueAt waits_longest(PortBits ports, const std::array<QueueBits, kPortsMax>& queues);
  void recover(std::array<LaneBits, kPortsMax>& claimed);
  emu::Cycle timeout() const { return static_cast<emu::Cycle>(w_.spec.recovery_cycles); }
  void ask_admission(unsigned p, unsigned out_port, hca::Message& message);
  void wake(unsigned p, unsigned lane);
  HeadAt head_at(unsigned p, unsigned lane, hca::MessageId id) const {
    const hca::Message& message = w_.messages[id];
    return {r_.id,
            static_cast<emu::PortId>(p),
            static_cast<emu::Vl>(lane),
            message.src,
            message.dest,
            message.traffic_class,
            message.handle,
            now_};
  }
  void release(unsigned p, unsigned queue);

  // Preemption (general_preempt.h).
  bool ends_block(const Port& port, unsigned queue) const {
    if (port.has_dummy(queue)) return (port.closing & queue_bit(queue)) != 0;
    return port.in[queue].flits.front().ends_block();
  }
  Flit dummy_flit(const Port& port, unsigned queue) const;
  void outrank(const OutputLane& lane);
  void make_way(unsigned p, unsigned lane, unsigned level);
  void interrupt(unsigned p, unsigned queue);
  void dummy_crossed(unsigned p, unsigned queue);
  void leave_line(QueueAt me);
  void stamp_dummy(unsigned p, unsigned queue);

  InputQueue& at(QueueAt q) { return r_.ports[q.port].in[q.queue]; }
  Stamp urgency(Port& port, const Flit& flit) { return port.clock.urgency(flit.stamp, now_); }
  Stamp between_inputs(const Chosen& chosen, LaneBits yielding) const;

  Router& r_;
  World& w_;
  [[no_unique_address]] DesignRules<Design> d_;
  emu::Cycle now_;
};

}  // namespace fabric::general
