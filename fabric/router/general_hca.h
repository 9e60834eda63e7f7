// The wire half of one HCA in the general engine: messages queue lane by lane, the arbiter of the
// router's kind puts one flit a cycle on the link as far as there are credits; the receiving end
// takes what comes and always has room. What hca/wire/group.h is to the fast engine.
#pragma once

#include "fabric/router/general_state.h"
#include "hca/wire/events.h"

namespace fabric::general {

class Hca {
 public:
  void configure(unsigned node, unsigned unit, const World& world);

  // A message joins the queue of its lane; it may leave from cycle message.launch on.
  void ready(World& world, hca::MessageId id, emu::Cycle now);
  template <class Design>
  void send(World& world, hca::Events& events, emu::Cycle now);
  void receive(World& world, hca::Events& events, emu::Cycle now);
  bool quiet(const World& world) const {
    return (waiting_ | accepted_ | refused_) == 0 && streams_wanting_ == 0 && !message_due_ &&
           world.links.ports_with(unit_) == 0;
  }
  void age(emu::Cycle now);
  // An acknowledgement of a probe came.
  void signal(unsigned lane, bool accepted) { (accepted ? accepted_ : refused_) |= lane_bit(lane); }

  PortClock& clock() { return clock_; }
  Arbiter& arbiter() { return arbiter_; }
  int backlog() const { return backlog_; }
  unsigned credits(unsigned lane, unsigned level) const { return lanes_[lane].credits[level]; }
  PortCounters counters() const;

 private:
  struct Queue {  // the next in Message::next
    hca::MessageId first = hca::kNoMessage;
    hca::MessageId last = hca::kNoMessage;
  };
  struct Lane {
    hca::MessageId current = hca::kNoMessage;
    // Of it; so that the table, which is large, is read once a message.
    std::uint16_t flits = 0;
    std::uint16_t sent = 0;
    std::uint8_t level = 0;
    emu::Cycle launch = 0;
    // Messages behind it; preemptive: those of a higher level go first.
    std::array<Queue, kLevelsMax> queue;
    std::array<std::uint16_t, kLevelsMax> credits{};
  };
  void bring_to_front(World& world, unsigned lane, emu::Cycle now);
  void begin(World& world, unsigned lane, hca::MessageId id, emu::Cycle now);
  template <class Design>
  void take_credits(const World& world, const Inbox& box);
  template <class Design>
  void show_next(const World& world, unsigned lane);
  template <class Design>
  Flit next_flit(const World& world, unsigned lane) const;

  // Circuits (general_circuit.cc). Messages queue stream by stream; a stream has at most one
  // circuit, on one lane, and gets the next one only when that is gone.
  struct Stream {
    enum class State : std::uint8_t { idle, wants, probing, open };
    Queue queue;
    State state = State::idle;
    bool stays = false;    // the circuit was opened by a probe packet: until a release
    emu::Cycle since = 0;  // wants: from this cycle on
    unsigned attempts = 0;
  };
  static unsigned stream_of(const hca::Message& message) {
    return message.stream == 0 ? message.vl_in
                               : static_cast<unsigned>(emu::kVlCount) + message.stream - 1U;
  }
  static bool opens(const hca::Message& message) {
    return message.stream != 0 && message.kind == emu::PacketKind::probe && !message.is_answer;
  }
  bool closes(const hca::Message& message, const Stream& stream) const {
    return !stream.stays || message.kind == emu::PacketKind::release;
  }
  void ready_for_circuit(World& world, hca::MessageId id, emu::Cycle now);
  void begin_probes(World& world, hca::Events& events, emu::Cycle now);
  void begin_probe(World& world, Stream& stream, unsigned lane, emu::Cycle now);
  void take_signals(World& world, hca::Events& events, emu::Cycle now);
  void begin_message(World& world, hca::Events& events, unsigned lane, emu::Cycle now);
  void circuit_closed(unsigned lane, emu::Cycle now);
  void probe_left(World& world, hca::Events& events, unsigned lane, emu::Cycle now);
  void answer_open(World& world, hca::Events& events, Stream& stream, emu::Cycle now);
  hca::MessageId pop(World& world, Stream& stream);
  int streams_wanting_ = 0;
  bool message_due_ = false;  // for a circuit that is open
  LaneBits circuits_ = 0;     // lanes with a circuit, or a probe for one
  LaneBits probing_ = 0;      // the probe has not left
  LaneBits accepted_ = 0;     // signals of this cycle
  LaneBits refused_ = 0;
  std::array<std::uint8_t, kLanesMax> lane_stream_{};
  std::vector<Stream> streams_;
  void stamp_next(const World& world, unsigned lane, emu::Cycle now);
  void tail_left(World& world, hca::Events& events, unsigned lane, emu::Cycle now);
  void tail_arrived(World& world, hca::Events& events, hca::MessageId id, unsigned lane,
                    emu::Cycle now);

  unsigned node_ = 0;
  unsigned unit_ = 0;
  LaneBits waiting_ = 0;  // lanes with a message
  QueueBits ready_ = 0;   // [World::queue_of(lane, level)] those with room for their next flit
  NextStamps next_;       // of a waiting lane
  std::array<Lane, kLanesMax> lanes_{};
  PortClock clock_;
  Arbiter arbiter_;
  int backlog_ = 0;
  std::array<LaneCounters, kLanesMax> sent_{};
  std::array<LaneCounters, kLanesMax> received_{};
  std::uint64_t wait_cycles_ = 0;
};

}  // namespace fabric::general
