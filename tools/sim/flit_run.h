// A point in virtual time: workload -> (HCA) -> engine -> measure. Without an HCA messages wait in
// an endless queue per node and lane and go to the wire halves as these have room: what MW and RN
// measure of their routers. With one (run.hca) best effort passes a HcaGate: the clusters of ACP.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "emu/base/result.h"
#include "fabric/router/network.h"
#include "tools/sim/bookings.h"
#include "tools/sim/circuits.h"
#include "tools/sim/due_sources.h"
#include "tools/sim/failures.h"
#include "tools/sim/flows.h"
#include "tools/sim/hca_gate.h"
#include "tools/sim/in_band.h"
#include "tools/sim/measure.h"
#include "tools/sim/nic.h"
#include "tools/sim/notice_way.h"
#include "tools/sim/point.h"
#include "tools/sim/workload.h"

namespace tools {

class FlitRun {
 public:
  // Messages of a lane that a wire half holds; the rest waits here.
  static constexpr std::uint32_t kAtWireMost = 256;
  static emu::Result<std::unique_ptr<FlitRun>> make(const Point& point);

  void play();
  const Measure& measure() const { return *measure_; }
  const fabric::Network& network() const { return *network_; }
  const Bookings* bookings() const { return bookings_.get(); }       // null: nobody asks
  const fabric::Notices* notices() const { return notices_.get(); }  // null: routers tell nothing
  // Messages that wait before the wire halves.
  std::uint64_t waiting() const;
  // One JSON object: batches and totals. The same point gives the same bytes.
  std::string json() const;

 private:
  struct Passed {
    std::uint64_t flits = 0;
    std::uint64_t packets = 0;
  };

  explicit FlitRun(const Point& point) : point_(point) {}
  emu::Result<void> build();
  emu::Result<void> build_hcas();
  fabric::NetworkSpec network_spec() const;
  void to_lane(const FlitMessage& message);
  void begin_lanes(std::uint32_t packets_per_node);
  void push(std::size_t node, std::size_t lane);
  void leave_table(std::uint32_t handle);
  void refill();
  void advance(emu::Cycle horizon);
  void look();
  void feed(emu::Cycle horizon);
  void drain();
  void listen();
  void send_own();
  void arrived(const hca::DeliveredEvent& event);
  void build_nics();
  void offer(FlitMessage& message);
  // To the card, or to its lane where there is none.
  void hand_on(const FlitMessage& message);
  void hca_window();
  void begin_windows();
  // Sent and received by an HCA since the start: flits one by one, packets at their tails.
  Passed passed(std::size_t node) const;
  void end_window();
  void admit();
  void open_circuits();
  void begin_workload();
  void change_links();
  void hold_back(std::size_t source, std::size_t first);
  void give_up(const FlitMessage& message);
  void let_go();
  // Cycles since the workload began.
  emu::Cycle now() const { return network_->now() - base_; }

  Point point_;
  Setting setting_;
  std::unique_ptr<fabric::Network> network_;
  std::unique_ptr<Measure> measure_;
  Workload workload_;
  std::unique_ptr<Bookings> bookings_;  // where streams are admitted
  std::unique_ptr<Circuits> circuits_;  // router pcs
  std::unique_ptr<FlowMeter> flows_;
  std::unique_ptr<Failures> failures_;           // where links fail
  std::vector<std::uint32_t> stream_of_source_;  // kNoStream: of none, or nobody asks admission
  std::vector<std::vector<FlitMessage>> held_;   // by stream: until it is granted again
  std::uint64_t given_up_ = 0;                   // messages of streams that were refused
  emu::Cycle base_ = 0;                          // of the network, when the workload began
  emu::Cycle quantum_ = 0;
  std::vector<HcaGate> gates_;                // by node; none without HCAs
  std::optional<InBand> in_band_;             // Self-Tuned without a side band
  std::vector<FlitMessage> of_hcas_;          // scratch: messages that HCAs send for themselves
  std::vector<Nic> nics_;                     // by node; none without cards
  std::unique_ptr<fabric::Notices> notices_;  // where routers tell HCAs of congestion
  NoticeWay notice_way_;
  std::vector<std::deque<FlitMessage>> queues_;  // [node * lanes + lane]
  std::vector<emu::LaneMask> lanes_queued_;      // [node] those that hold messages
  std::vector<std::uint32_t> at_wire_;           // submitted and not injected, of each of these
  std::vector<std::uint32_t> in_table_;          // submitted and not delivered, of each of these
  std::vector<std::uint32_t> kept_;   // [node] of the table, for lanes with less than lane_share_
  std::uint32_t lane_share_ = 0;      // of the table, that each lane may have whatever others do
  std::uint32_t at_wire_most_ = 0;    // of a lane
  std::vector<FlitMessage> flights_;  // by handle: what the engine carries
  std::vector<std::uint32_t> free_flights_;
  DueSources due_sources_;
  std::vector<FlitMessage> created_;  // scratch
  std::uint64_t queued_ = 0;          // in queues_
  std::uint64_t delivered_flits_ = 0;
  std::vector<double> router_pj_;  // of each, with the links behind it, in the running window
  std::uint64_t hca_flits_ = 0;    // sent and received by all HCAs in it
  std::vector<Passed> passed_;     // sent and received by each HCA up to the last window
};

}  // namespace tools
