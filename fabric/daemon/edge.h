// The edge of the fabric: packets that came in by a port enter the wire half of their node, what
// the engine says goes out by the ports. Keeps probes on their way, answers them at the source, and
// gives back what a lost node had booked. No I/O, no clock. Called by the loop, once a turn each.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <span>
#include <vector>

#include "emu/base/result.h"
#include "emu/base/units.h"
#include "emu/metrics/histogram.h"
#include "emu/wire/capture.h"
#include "emu/wire/message.h"
#include "fabric/admit/admission.h"
#include "fabric/port/packets.h"
#include "fabric/port/port.h"
#include "fabric/router/control_hook.h"
#include "fabric/router/network.h"
#include "fabric/subnet/agent.h"

namespace fabric {

// Asked by the engine when the head of a probe or release is routed; looks the body up by handle.
class ControlPackets final : public ControlHook {
 public:
  struct Record {
    ProbeState state;
    PacketHandle packet = kNoPacket;
    std::uint32_t ways = 0;  // Edge::ways_ when it entered
    std::uint16_t epoch = 0;
    emu::PacketKind kind = emu::PacketKind::probe;
    bool used = false;
    bool lapsed = false;  // its node was lost: it books and gives back no more
  };

  // The admission is set before the first step.
  void connect(Admission* admission) { admission_ = admission; }
  bool at_route(const ControlHead& head) override;

  std::uint32_t add(const Record& record);
  const Record& at(std::uint32_t handle) const { return records_[handle]; }
  Record take(std::uint32_t handle);

  // Gives back what is booked for it at any router, without a packet.
  void forget(const emu::ProbeBody& body);
  // What releases under way are for, at once: they may go by other routers than their probes.
  void finish_releases();
  // Gives back all that the node has booked. What it has under way may meet bookings of its next
  // session, which has the same ids, and does nothing there.
  void forget_node(emu::NodeId node);

 private:
  Admission* admission_ = nullptr;
  std::vector<Record> records_;
  std::vector<std::uint32_t> free_;
};

struct ClassStats {
  std::uint64_t packets = 0;
  emu::PlainHistogram latency_ns;   // head injected -> tail arrived
  emu::PlainHistogram queueing_ns;  // ready to leave -> head injected
};

struct EdgeOptions {
  emu::CycleTime cycle_time;
  std::array<emu::Vtick, emu::kVlCount> vtick_of_lane{};  // FGVC: of a message on this lane
  // Data packets go from port to port at their launch time, past the engine. A packet without one
  // has left when it is sent: its sender knows that, and is told of the others only.
  bool pass_through = false;
  std::uint32_t flit_bits = 128;
};

class Edge {
 public:
  Edge(Network& network, PacketMemory& memory, ControlPackets& controls,
       const EdgeOptions& options);

  // Nodes come and go. What a lost node had booked is given back at once.
  void attached(emu::NodeId node, Port& port);
  void lost(emu::NodeId node);

  // Network::set_down. Bookings on ways that change are given back at once, at every router, and
  // their nodes told to ask again; of a probe under way when its answer comes.
  emu::Result<void> set_down(std::span<const LinkEnd> links);

  // Every data packet that arrives is told to it; null: nobody wants to know.
  void watch(emu::CaptureWriter* capture) { capture_ = capture; }

  // Who answers packets of PacketKind::subnet, at once and in their own buffers; null: nobody, and
  // they count as malformed.
  void answer_by(SubnetAgent* agent) { agent_ = agent; }

  // Of all nodes' datagrams so many are answered a turn, one of each in turn: a program that asks
  // without end holds up its own answers, not emulated time.
  static constexpr int kAnswersPerTurn = 4;

  // Takes everything out of inbox.packets. Datagrams for the subnet's agents may wait here.
  void submit(Inbox& inbox);
  bool has_questions() const { return !questions_.empty(); }
  // Takes every event out of the network; lets packets pass whose launch time has come.
  void hand_out();

  // Packets with the wire half's queue full, waiting to be submitted.
  std::size_t waiting() const { return waiting_count_; }
  // Pass-through: the earliest launch of those that wait for it.
  emu::Cycle next_launch() const { return held_.empty() ? emu::kNever : held_.front().launch; }
  const std::array<ClassStats, emu::kClassCount>& classes() const { return classes_; }
  std::uint64_t undeliverable() const { return undeliverable_; }
  // Packets of PacketKind::subnet that held no datagram, dropped.
  std::uint64_t malformed() const { return malformed_; }
  std::uint64_t in_flight() const { return submitted_ - finished_; }
  bool is_attached(emu::NodeId node) const { return ports_[node] != nullptr; }
  // Of those that crossed links; where packets pass none are counted.
  using Multicasts = PerformanceManagement::Multicasts;
  Multicasts multicasts(emu::NodeId node) const { return multicasts_[node]; }

 private:
  // What a node asked to book.
  struct Asked {
    emu::ProbeBody body;
    std::uint32_t probes = 0;  // under way
    bool moved = false;        // its way changed meanwhile
  };
  using Connections = std::map<std::uint64_t, Asked>;

  struct Held {
    emu::Cycle launch;
    std::uint64_t order;  // packets with the same launch time pass in the order in which they came
    PacketHandle packet;
    // The heap has the largest in front.
    friend bool operator<(const Held& a, const Held& b) {
      return a.launch != b.launch ? a.launch > b.launch : a.order > b.order;
    }
  };

  void pass_or_hold(PacketHandle packet, const PacketMeta& meta);
  void pass(PacketHandle packet, emu::Cycle at);
  void pass_due();
  void submit_data(PacketHandle packet, const PacketMeta& meta);
  void submit_control(PacketHandle packet, const PacketMeta& meta);
  void answer_questions();
  void answer_subnet(PacketHandle packet, const PacketMeta& meta);
  void enter(emu::NodeId source, const hca::SendPacket& packet);
  void retry_waiting();
  bool is_multicast(PacketHandle packet);
  void on_injected(const hca::InjectedEvent& event);
  void on_delivered(const hca::DeliveredEvent& event);
  void on_answer(const hca::AnswerEvent& event);
  bool superseded(const hca::AnswerEvent& event, const ControlPackets::Record& record);
  void ask_again(emu::NodeId node, const emu::ProbeBody& body);
  bool current(emu::NodeId node, std::uint16_t epoch) const {
    return ports_[node] != nullptr && epochs_[node] == epoch;
  }

  Network& network_;
  PacketMemory& memory_;
  ControlPackets& controls_;
  EdgeOptions options_;
  std::array<Port*, emu::kNodesMax> ports_{};
  std::array<std::uint16_t, emu::kNodesMax> epochs_{};
  std::array<ClassStats, emu::kClassCount> classes_;
  std::uint64_t submitted_ = 0;
  std::uint64_t finished_ = 0;
  std::vector<Held> held_;  // a heap by launch time
  // cold
  std::array<std::deque<hca::SendPacket>, emu::kNodesMax> waiting_;
  std::size_t waiting_count_ = 0;
  // What a node asked to book and has not released.
  std::array<Connections, emu::kNodesMax> connections_;
  std::uint32_t ways_ = 0;  // changes of links
  emu::CaptureWriter* capture_ = nullptr;
  SubnetAgent* agent_ = nullptr;
  std::map<emu::NodeId, std::deque<PacketHandle>> questions_;  // of nodes that have any
  emu::NodeId answered_ = 0;                                   // the last one that had its turn
  std::array<Multicasts, emu::kNodesMax> multicasts_{};
  std::uint64_t undeliverable_ = 0;
  std::uint64_t malformed_ = 0;
};

}  // namespace fabric
