// All of a Host's state, and the functions that the files of this room offer one another. State is
// plain; functions take it. Order of files along a message's way:
//   doorbell (schedule.cc) -> fetch.cc -> request.cc / datagram.cc -> burst.cc -> port
//   arrival.cc -> respond.cc / datagram.cc -> completion.cc;  back: response.cc -> acknowledge.cc
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "emu/base/prng.h"
#include "emu/packet/parse.h"
#include "hca/host/admit.h"
#include "hca/host/burst.h"
#include "hca/host/completion.h"
#include "hca/host/congestion.h"
#include "hca/host/heap.h"
#include "hca/host/host.h"
#include "hca/host/key.h"
#include "hca/host/lanes.h"
#include "hca/host/mad.h"
#include "hca/host/multicast.h"
#include "hca/host/power.h"
#include "hca/host/qp.h"
#include "hca/host/srq.h"

namespace hca {

struct Caller {  // what of a client rings here; hcad has a Client with all that it holds
  bool open = false;
  DoorbellPage* doorbells = nullptr;
  std::uint32_t head = 0;      // of its doorbell ring; ours, not the page's
  std::uint32_t rang = kNone;  // slot of the QP that rang last, most often the next one, too
  // What may still lie in its page; where it belongs is not for the page to say.
  MemoryPiece inline_piece{};
};

struct Pd {
  bool used = false;
  ClientId client = 0;
  std::uint32_t users = 0;  // MRs and QPs
};

// Of a class: whether those that are read from have their turn or those with requests, and how many
// packets they had of it.
struct Turn {
  bool reads = true;
  std::uint32_t packets = 0;
};

// What the rest of a packet's descriptor says.
struct Leaving {
  emu::Cycle launch = 0;
  emu::Vl vl_in = 0;
  emu::Vl vl_out = 0;
  std::uint16_t vtick = 0;  // 0: its lane's
  emu::TrafficClass traffic_class = emu::TrafficClass::best_effort;
  bool first_time = false;  // not a repetition: its injection returns a credit
  bool in_lane = false;     // it had to find room in its lane, and has it until it is injected
  bool question = false;    // it asks for an answer: the retry timer waits until it is injected
};

// The last words of a QP that has ended: a program that has what it waited for goes at once, and
// its peer would ask a QP that is gone until it gave up.
struct LeftResponse {
  emu::PacketHeaders headers;
  Leaving leaving;
  emu::NodeId dest = 0;
  Response response;
};
inline constexpr std::size_t kLeftResponsesMax = kQpSlots;  // peers of what is beyond ask in vain

// Packets on their way to a QP of this same node: the fabric never sees them.
inline constexpr std::uint32_t kLoopPackets = 128;

class HostState {
 public:
  HostState(const HostOptions& options, Memory& memory, PacketPort& port, HostEvents& events);

  Qp* find_qp(std::uint32_t number) {
    const std::uint32_t slot = number & kQpSlotMask;
    Qp* const qp = qp_or_null(slot);
    return qp != nullptr && qp->number == number ? qp : nullptr;
  }
  Qp& qp_at(std::uint32_t slot) { return *qps_[slot]; }
  // Null for what is no slot, too: kNone.
  Qp* qp_or_null(std::uint32_t slot) { return slot < qps_.size() ? qps_[slot].get() : nullptr; }

  HostOptions options_;
  Memory& memory_;
  PacketPort& port_;
  HostEvents& events_;
  HostCounters counters_;
  emu::Prng prng_;
  emu::Cycle now_ = 0;
  emu::Cycle horizon_cycles_;
  double power_pj_per_cycle_;                      // of this HCA; 0: no limit
  emu::Cycle power_cycles_;                        // in which it pays its budget
  emu::Cycle class_power_cycles_;                  // in which best effort's part of it does
  emu::Cycle power_blocked_until_ = 0;             // best effort waits for energy
  bool slots_blocked_ = false;                     // the port had none
  std::size_t advance_bytes_ = 0;                  // of packets of a class in this advance()
  std::uint64_t best_effort_out_ = 0;              // packets handed on and not yet injected
  std::unique_ptr<CongestionControl> congestion_;  // of best effort
  bool congestion_turn_ =
      false;  // changes with each new scheme: what the old one tagged is nothing
  bool best_effort_held_ = false;  // congestion control lets none of the queued QPs send

  std::vector<std::unique_ptr<Qp>> qps_;
  std::vector<Mr> mrs_;
  WakeHeap wakes_;
  std::array<LaneQueues, emu::kClassCount> requests_{};
  std::array<LaneQueues, emu::kClassCount> acks_{};   // QPs whose next response is no read
  std::array<LaneQueues, emu::kClassCount> reads_{};  // and whose next one is
  std::uint64_t queue_order_ = 0;                     // of who was queued last
  std::array<LaneStock, emu::kClassCount> lanes_{};
  std::uint32_t at_wire_ = 0;    // packets handed on and not yet injected, whatever they wait for
  std::uint32_t slots_ = 0;      // of the port
  std::uint32_t port_life_ = 0;  // what was handed on in another one is gone
  std::array<Turn, emu::kClassCount> turns_{};
  double power_budget_pj_;  // by the ways that were configured
  EnergyCalendar calendar_;
  EnergyCalendar best_effort_calendar_;
  Searched best_effort_searched_;  // of both
  Burst burst_;
  Settlement settlement_;
  std::vector<Cq> cqs_;
  std::vector<Srq> srqs_;
  MadQueue mads_;
  std::deque<LeftResponse> left_responses_;
  std::vector<McastGroup> groups_;
  std::vector<XrcDomain> xrc_domains_;
  std::vector<XrcHandle> xrc_handles_;

  // Own packet memory for traffic within the node.
  std::vector<std::uint8_t> loop_bytes_;
  std::array<emu::TxDesc, kLoopPackets> loop_{};
  std::uint32_t loop_reserved_ = 0;  // free running: reserved >= sent >= delivered
  std::uint32_t loop_sent_ = 0;
  std::uint32_t loop_delivered_ = 0;

  // cold
  std::vector<Caller> clients_;
  std::vector<Pd> pds_;
  std::vector<std::uint32_t> free_qps_;
  std::deque<std::uint32_t> free_mrs_;  // the one that is free for longest is next
  std::deque<std::uint32_t> free_cqs_;  // the same
  std::vector<std::uint32_t> free_srqs_;
  std::vector<std::uint32_t> free_pds_;
  std::vector<std::uint16_t> qp_generations_;
  std::array<std::uint32_t, emu::kClassCount> lane_draws_{};
  Admission admission_;
};

// ---- schedule.cc: who sends next ----
void want_request(HostState& s, Qp& qp);  // there may be a request to send: queue it
void want_response(HostState& s, Qp& qp);
void unqueue(HostState& s, Qp& qp);        // out of every queue and the heap
void wake_again(HostState& s, Qp& qp);     // brings the heap in line with the QP's times
void ring_doorbell(HostState& s, Qp& qp);  // the application said that it posted
std::size_t transmit(HostState& s);
emu::Cycle next_wake(const HostState& s);
bool is_queued(const HostState& s);  // something would leave if it could
void run_timers(HostState& s);

// ---- fetch.cc: a work request is copied and checked ----
// The current request, fetched if need be; null: there is none.
SendEntry* current_request(HostState& s, Qp& qp);

// Only of a request that has kWqeExtended.
inline const WqeExtension& extension_of(const SendWqe& wqe) {
  return *reinterpret_cast<const WqeExtension*>(reinterpret_cast<const std::uint8_t*>(&wqe) +
                                                sizeof wqe);
}
// Where the list or the inline bytes begin.
inline std::size_t list_offset(const SendWqe& wqe) {
  return sizeof wqe + ((wqe.flags & kWqeExtended) != 0 ? sizeof(WqeExtension) : 0);
}
inline const std::uint8_t* list_of(const SendWqe& wqe) {
  return reinterpret_cast<const std::uint8_t*>(&wqe) + list_offset(wqe);
}

// ---- request.cc, retry.cc: the requester of RC ----
bool request_ready(HostState& s, Qp& qp);             // may its next packet go now? else notes when
emu::NodeId request_dest(Qp& qp);                     // where that goes, of a QP that is ready
std::uint32_t lane_of_request(HostState& s, Qp& qp);  // and the lane in which it needs room
// Packets into the burst; 0: not now. `in_lane`: they found room in lane_of_request().
std::uint32_t build_request(HostState& s, Qp& qp, bool in_lane);
void rewind(HostState& s, Qp& qp, std::uint32_t psn);
void time_question(HostState& s, Qp& qp);              // the peer answered: what is still asked?
void question_asked(Qp& qp, std::uint32_t psn_after);  // handed on; with PSNs before `psn_after`
void question_left(HostState& s, Qp& qp);              // injected
void retry_timer_fired(HostState& s, Qp& qp);
void fill_path(const HostState& s, const Qp& qp, emu::PacketHeaders& headers);
void fill_grh(const HostState& s, const AddressVector& av, emu::Grh& grh);

// ---- response.cc: the responder's packets ----
std::uint32_t build_response(HostState& s, Qp& qp);  // packets into the burst; 0: not now
// The QP ends: what it has yet to acknowledge did come, unless settle() finds now that it did not,
// and is said without it.
void leave_responses(HostState& s, Qp& qp);
std::size_t send_left_responses(HostState& s);
void push_ack(HostState& s, Qp& qp, std::uint32_t psn);
void push_nak(HostState& s, Qp& qp, std::uint32_t psn, std::uint8_t syndrome, bool fatal);

// ---- respond.cc, acknowledge.cc, datagram.cc: arrivals ----
void respond(HostState& s, Qp& qp, const Arrival& arrival, const emu::ParsedPacket& packet);
void acknowledge(HostState& s, Qp& qp, const Arrival& arrival, const emu::ParsedPacket& packet);
void receive_datagram(HostState& s, Qp& qp, const Arrival& arrival,
                      const emu::ParsedPacket& packet);
void build_datagram(HostState& s, Qp& qp);
emu::TrafficClass class_of_request(HostState& s, Qp& qp);
// The lane at the HCA on which an untimed datagram leaves.
emu::Vl lane_of_datagram(const HostState& s, const Qp& qp, const SendWqe& wqe, emu::NodeId dest);
bool nobody_at(const HostState& s, emu::Lid lid);

void receive_unreliable(HostState& s, Qp& qp, const Arrival& arrival,
                        const emu::ParsedPacket& packet);

// ---- atomic.cc: the responder of compare-and-swap, fetch-and-add and atomic writes ----
void serve_atomic(HostState& s, Qp& qp, const emu::PacketHeaders& headers, bool repeated);
void serve_atomic_write(HostState& s, Qp& qp, const emu::PacketHeaders& headers,
                        const std::uint8_t* bytes, std::uint32_t length);
// Its answer; `repeated`: it was executed before, and is not once more.
void confirm_atomic_write(HostState& s, Qp& qp, std::uint32_t psn, bool repeated);
void refuse(HostState& s, Qp& qp, std::uint32_t psn, emu::NakCode code, AsyncEvent event);

// What a packet's request asks for, whichever packet of it this is; shared by RC and UC.
struct Request {
  Receiving kind = Receiving::nothing;
  bool is_read = false;
  bool imm = false;
  bool is_atomic = false;
  bool is_atomic_write = false;
  bool invalidates = false;
  bool is_answered() const { return is_read || is_atomic || is_atomic_write; }
};
Request request_of(emu::Opcode opcode);
bool fits_path(const Qp& qp, const emu::ParsedPacket& packet);
// Whether the QP's access flags have what a request of its peer's needs.
bool is_enabled(HostState& s, const Qp& qp, std::uint32_t access);
bool may_write(HostState& s, const Qp& qp, const emu::Reth& reth);  // by the key
void start_write(Qp& qp, const emu::Reth& reth);
// The next bytes of the RDMA WRITE under way; false: its region has gone.
bool write_on(HostState& s, Qp& qp, const std::uint8_t* bytes, std::uint32_t length,
              std::uint32_t psn);
void finish_message(HostState& s, Qp& qp, const Arrival& arrival, const emu::ParsedPacket& packet,
                    const Request& request);

// Receive work requests, shared by respond and datagram.
enum class TakeRecv : std::uint8_t { ok, none, broken };
TakeRecv take_recv(HostState& s, Qp& qp);
TakeRecv take_shared(HostState& s, Qp& qp);  // srq.cc
// A slot of either queue becomes the QP's receive; false: its list is longer than it may be.
bool copy_receive(Qp& qp, const std::uint8_t* slot, std::uint32_t sges_max);
inline std::uint32_t recv_pd(const HostState& s, const Qp& qp) {
  return qp.srq == kNone ? qp.pd : s.srqs_[qp.srq].pd;
}
// Copies payload to the place where the list stands. Keys are looked up where bytes go: what the
// message does not touch may be anything.
WcStatus scatter_payload(HostState& s, Qp& qp, std::uint32_t pd, const Sge* sges,
                         std::uint32_t num_sge, SgeCursor& cursor, const std::uint8_t* bytes,
                         std::uint32_t length, std::uint32_t psn);
// The same of the taken receive; a key that is wrong is told.
WcStatus scatter_receive(HostState& s, Qp& qp, const std::uint8_t* bytes, std::uint32_t length,
                         std::uint32_t psn);
void complete_recv(HostState& s, Qp& qp, WcStatus status, const Cqe& cqe, bool solicited);

// ---- multicast.cc ----
inline constexpr std::uint32_t kMulticastQp = 0xffffff;  // IBA 3.5.10: the QP that groups have
using emu::is_group;
void receive_multicast(HostState& s, const Arrival& arrival, const emu::ParsedPacket& packet);
bool is_attached(const HostState& s, std::uint32_t qpn);
void detach_all(HostState& s, std::uint32_t qpn);
inline bool may_receive(const Qp& qp) {
  return qp.state == QpState::rtr || qp.state == QpState::rts || qp.state == QpState::sqd ||
         qp.state == QpState::sqe;
}

// ---- trouble.cc: what is known of a failure is told to HostEvents::trouble ----
void blame_key(HostState& s, const Qp& qp, TroubleKind kind, const KeyUse& use);
// `length`: of the message so far; `sender`: of a datagram, whose QP has no peer.
void blame_length(HostState& s, const Qp& qp, std::uint64_t length, emu::Lid sender = 0);
void blame_flag(HostState& s, const Qp& qp, std::uint32_t access);  // that the QP lacks
void blame_remote(HostState& s, const Qp& qp, TroubleKind kind, std::uint32_t key = 0);
// The peer's request: refused as an invalid one.
void refuse_request(HostState& s, Qp& qp, std::uint32_t psn, RequestFault fault,
                    std::uint64_t length = 0, std::uint64_t size = 0, std::uint64_t address = 0);
void blame_request(HostState& s, Qp& qp, WcStatus status);          // the one at sq_done
void blame_depth(HostState& s, const Qp& qp, std::uint64_t wr_id);  // max_rd_atomic is 0
void blame_sender(HostState& s, const Qp* qp, std::uint32_t qpn, emu::Lid sender);
void blame_attributes(HostState& s, const Qp& qp, const Trouble& found);

// ---- xrc.cc ----
// Tells the program that owns a QP; of an XRC_RECV QP all that have it open, by each handle.
void tell(HostState& s, const Qp& qp, AsyncEvent event);
bool owns(const Qp& qp, ClientId client);
bool has_handle(const Qp& qp, ClientId client, std::uint32_t handle);
// The PD that a request's keys are of; kNone, which no key is of: it names no SRQ of the domain.
std::uint32_t request_pd(const HostState& s, const Qp& qp, const emu::PacketHeaders& headers);
// The QP takes this message for its SRQ; false: it may not. Nothing for other services.
bool enter_srq(HostState& s, Qp& qp, const emu::PacketHeaders& headers, bool first);
XrcHandle* find_xrcd(HostState& s, ClientId client, std::uint32_t xrcd);
void leave_srq(HostState& s, std::uint32_t srq);  // it ends: QPs forget it
// This program lets go of an XRC_RECV QP, by one handle or all (kNone); true: nobody has it any
// more.
bool let_go(HostState& s, Qp& qp, ClientId client, std::uint32_t handle);

// ---- window.cc ----
WcStatus run_local(HostState& s, const Qp& qp, const SendWqe& wqe);  // bind, invalidate
bool may_invalidate(HostState& s, const Qp& qp, std::uint32_t key);
void invalidate(HostState& s, const Qp& qp, std::uint32_t key);

// ---- objects.cc ----
void free_mr(HostState& s, Mr& mr);
Pd* find_pd(HostState& s, ClientId client, std::uint32_t pd);  // null: it is not this client's
Cq* find_cq(HostState& s, ClientId client, std::uint32_t cq);

// ---- queue_pair.cc ----
void free_qp(HostState& s, Qp& qp);

// ---- notice.cc: what routers tell sources ----
void hear_notice(HostState& s, const emu::Notice& notice);
void queue_owed_reliefs(HostState& s);
bool take_notice(HostState& s, emu::NodeId from, const Mad& mad);  // false: it is none

// ---- mad.cc: management datagrams, QP1 ----
std::size_t send_mads(HostState& s);
bool queue_mad(HostState& s, emu::NodeId dest, const Mad& mad);  // false: too many wait
void receive_mad(HostState& s, const Arrival& arrival, const emu::ParsedPacket& packet);
void receive_subnet(HostState& s, const Arrival& arrival, const emu::ParsedPacket& packet);

// ---- arrival.cc ----
void receive_all(HostState& s, std::span<const Arrival> arrivals);
inline const std::uint8_t* payload_of(const Arrival& arrival, const emu::ParsedPacket& packet) {
  if (arrival.lent.empty()) return arrival.bytes + packet.payload_offset;
  return arrival.lent.data() + (packet.payload_offset - emu::kTrainHeadBytes);
}
void deliver_loop(HostState& s);

// ---- burst.cc: packets leave together ----
// A packet for `dest` with a slot to write in; null: the port has no slot now.
BurstPacket* open_packet(HostState& s, std::uint32_t qp_slot, emu::NodeId dest);
// Packets of a message of which `left` are left that may leave in one train.
std::uint32_t train_packets(const HostState& s, const Qp& qp, std::uint32_t left);
// For `packets` of them as a train, or for one: its `packets` says how many.
BurstPacket* open_train(HostState& s, std::uint32_t qp_slot, emu::NodeId dest,
                        std::uint32_t packets);
// A packet which leaves the node whatever its destination.
BurstPacket* open_packet_out(HostState& s, std::uint32_t qp_slot, emu::NodeId dest);
// Headers into the slot; returns where the payload goes. The packet is part of the burst then.
std::uint8_t* close_packet(HostState& s, BurstPacket& packet, Qp* qp,
                           const emu::PacketHeaders& headers, std::uint32_t payload_bytes,
                           const Leaving& leaving);
// Payload of request `index` from `offset` on, for the packet closed last.
void gather_payload(HostState& s, Qp& qp, std::uint32_t index, std::uint32_t offset,
                    std::uint8_t* bytes, std::uint32_t length);
// The same from a checked range of memory.
void gather_range(HostState& s, const Range& range, std::uint8_t* bytes, std::uint32_t length);
// As gather_payload(), for a train closed last and without a copy; false: it must be gathered.
bool lend_payload(HostState& s, Qp& qp, std::uint32_t index, std::uint32_t offset,
                  std::uint8_t* home, std::uint32_t length);
// What was posted to the QP is its program's again, other than by the peer's answer.
inline void take_back_lent(HostState& s, const Qp& qp) {
  if (!qp.is_unreliable()) s.port_.bring_home();
}
void fail_packet(HostState& s);  // the packet closed last must not leave: a key went away
void dispatch(HostState& s);
void packet_injected(HostState& s, const emu::Injected& event);
void qp_injected(HostState& s, std::uint64_t cookie);

// ---- power (request.cc) ----
// The budget is what this HCA's power pays in so many cycles, and each packet holds its energy for
// all of them, near or far: whatever the packets, no more energy than that leaves in that time.
struct PowerNeed {
  double energy_pj;
  emu::Cycle cycles;        // in which this HCA's power pays the budget
  emu::Cycle class_cycles;  // best effort: in which its class's part does
};
// Inline, so that its result is never in memory: a packet's payload was just written, and a read
// of half-written stack words would wait for all of that.
inline PowerNeed power_need(const HostState& s, emu::NodeId dest, std::uint16_t flits) {
  const double energy_pj = s.options_.energy.packet_pj(s.options_.hops_to[dest], flits);
  return {energy_pj, s.power_cycles_, s.class_power_cycles_};
}
bool metered(const HostState& s, emu::TrafficClass traffic_class, emu::NodeId dest);
// When a packet asked for at `asked` may leave, not before `wish`; kNever: best effort, and not
// soon (the class waits).
emu::Cycle launch_with_power(HostState& s, emu::TrafficClass traffic_class, emu::Cycle asked,
                             emu::Cycle wish, const PowerNeed& need);
void hold_power(HostState& s, emu::TrafficClass traffic_class, emu::Cycle launch,
                const PowerNeed& need);

// ---- completion.cc ----
void complete(HostState& s, Qp& qp, PendingCqe& pending);
void complete_send(HostState& s, Qp& qp, WcStatus status);  // the request at sq_done
void write_piece(HostState& s, Qp& qp, const Range& range, const std::uint8_t* bytes,
                 std::uint32_t length, std::uint32_t psn);
void write_pieces(HostState& s);  // bytes that wait, now: somebody is about to read them
// An event that speaks of completions is told when these can be found in the CQ.
void tell_after_completions(HostState& s, const Qp& qp, AsyncEvent event);
void settle(HostState& s);  // all of it, and what follows from faults
bool unsettled(const HostState& s);

// ---- failure.cc: error states ----
void fail_send(HostState& s, Qp& qp, WcStatus status);  // the request at sq_done failed
void enter_error(HostState& s, Qp& qp);
// The memory of the QP's program has gone, its connection to us will. No NAK: peers see a dead
// program as they see a dead node. But by XRC others go on, and the SRQ is as good as gone.
void lose_program(HostState& s, Qp& qp, std::uint32_t psn);
void flush_sends(HostState& s, Qp& qp);
void flush_recvs(HostState& s, Qp& qp);
void reset_transport(Qp& qp);
void qp_fault(HostState& s, Qp& qp);  // its rings are nonsense
void retire(HostState& s, Qp& qp);    // completes what was acknowledged and bad requests in turn

// ---- modify.cc ----
int modify(HostState& s, Qp& qp, const QpAttributes& wanted, std::uint32_t mask);

// ---- credit.cc ----
void set_credit(HostState& s, Qp& qp, std::uint64_t rate_bps, std::uint64_t peak_bps);
void return_credit(Qp& qp, std::uint32_t packets);
bool best_effort_blocked(const HostState& s);  // whatever its destination
bool may_send_best_effort(HostState& s, emu::NodeId dest);
void choose_congestion(HostState& s);  // the scheme that options_ ask for, from now on
// A best-effort packet is handed on, and comes back: what its cookie carries meanwhile.
std::uint64_t congestion_cookie(HostState& s, const emu::TxDesc& desc);
void congestion_came_back(HostState& s, std::uint64_t cookie);

// To itself, or to nobody: such packets never reach the port (and the latter end at arrival).
inline bool stays_here(const HostState& s, emu::NodeId dest) {
  return dest == s.options_.node || dest >= s.options_.nodes;
}
// Lane number `nth` of a set of lanes.
inline emu::Vl nth_lane(std::uint16_t lanes, std::uint32_t nth) {
  std::uint16_t left = lanes;
  while (nth-- > 0) left = static_cast<std::uint16_t>(left & (left - 1));
  return static_cast<emu::Vl>(std::countr_zero(left));
}
inline std::uint32_t add24(std::uint32_t value, std::uint32_t n) { return emu::psn_add(value, n); }

}  // namespace hca
