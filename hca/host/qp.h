// One queue pair: plain state, hot first. Requester, responder and scheduler each own a group.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "emu/base/units.h"
#include "emu/packet/headers.h"
#include "hca/abi/attributes.h"
#include "hca/abi/rings.h"
#include "hca/host/lazy.h"
#include "hca/host/memory.h"

namespace hca {

// QP number: generation << 14 | slot, so that late packets of a destroyed QP miss its successor.
inline constexpr std::uint32_t kQpSlotBits = 14;
inline constexpr std::uint32_t kQpSlotMask = (1u << kQpSlotBits) - 1;
inline constexpr std::uint32_t kQpGenerations = 1u << (24 - kQpSlotBits);
static_assert((1u << kQpSlotBits) == kQpSlots);

// PSNs are compared within half their circle: no more of them may be outstanding, so that no
// message may have more packets.
inline constexpr std::uint32_t kMaxOutstandingPackets = kMaxMessagePackets;

// A send work request from fetch to completion.
struct SendEntry {
  emu::Cycle launch = 0;  // of its first packet; 0: as soon as possible
  std::uint32_t span_cycles = 0;
  std::uint32_t first_psn = 0;
  std::uint32_t packets = 0;  // requests it sends; for a READ, responses it gets
  std::uint32_t length = 0;   // bytes of the message
  WrOpcode opcode = WrOpcode::send;
  WcStatus status = WcStatus::success;  // of the checks at fetch
  std::uint8_t flags = 0;
  std::uint8_t num_sge = 0;

  bool is_answered() const { return hca::is_answered(opcode); }
};

// What the responder still has to send, in the order of its PSNs.
enum class ResponseKind : std::uint8_t { ack, nak, read, atomic };
struct Response {
  std::uint64_t address = 0;  // read; atomic: what stood there before
  std::uint32_t rkey = 0;
  std::uint32_t pd = 0;  // read: that its key belongs to
  std::uint32_t length = 0;
  std::uint32_t psn = 0;
  std::uint32_t msn = 0;
  std::uint32_t sent = 0;  // read: packets
  std::uint32_t packets = 1;
  ResponseKind kind = ResponseKind::ack;
  std::uint8_t syndrome = 0;
  bool fatal = false;     // the QP goes to ERR when this has been sent
  bool repeated = false;  // read: its request had been served before

  // Of no more than headers are acknowledgements, and answers to atomic writes and READs of
  // nothing.
  bool brings_data() const { return kind == ResponseKind::read && length != 0; }
};
// What an atomic found, kept for its repetition: executing it twice would be wrong (IBA 9.4.5).
struct AtomicResult {
  std::uint32_t psn = kNone;
  std::uint64_t original = 0;
};

// Reads in flight, an acknowledgement between each two, and as many repeated reads.
inline constexpr std::uint32_t kResponsesMax = 64;
static_assert(kResponsesMax >= 3 * kMaxRdAtomic + 2);

// Position in a scatter/gather list.
struct SgeCursor {
  std::uint32_t sge = 0;
  std::uint32_t offset = 0;  // within that sge
  std::uint32_t bytes = 0;   // from the start of the message; kNone: seek first
};

enum class Receiving : std::uint8_t { nothing, send, write };

// Membership of a scheduler queue (class × lane × {responses, requests}).
struct QueueLink {
  std::uint32_t next = kNone;
  std::uint32_t prev = kNone;
  std::uint64_t order = 0;  // whoever was queued before has a lower one, in whatever queue
  bool queued = false;
};

// A program that opened an XRC_RECV QP, through its handle of the QP's domain.
struct QpOpener {
  ClientId client = 0;
  std::uint32_t xrcd = 0;
  std::uint32_t opening = 0;  // above the number in its handle of the QP
};

struct Qp {
  // Identity; constant after creation. An XRC_RECV QP has neither PD nor queues of its own: each
  // message says whose SRQ it is for, and pd, recv_cq, srq and client are that one's (xrc.cc).
  std::uint32_t number = 0;
  std::uint32_t slot = 0;
  std::uint32_t pd = 0;
  std::uint32_t send_cq = kNone;
  std::uint32_t recv_cq = kNone;
  std::uint32_t srq = kNone;  // whose receives it takes, if not its own
  ClientId client = 0;
  QpType type = QpType::rc;
  bool signal_all = false;
  QpCapacity capacity;
  QpLayout layout{};
  std::uint8_t* region = nullptr;
  QpPage* page = nullptr;

  // Path, set at RTR (RC); lanes of UD packets are drawn per message.
  QpState state = QpState::reset;
  emu::TrafficClass traffic_class = emu::TrafficClass::best_effort;
  emu::Vl vl_in = 0;
  emu::Vl vl_out = 0;
  std::uint16_t vtick = 0;  // cycles between flits at the booked rate; 0: nothing is booked
  emu::NodeId dest = 0;
  std::uint32_t payload = 0;  // bytes per packet
  std::uint16_t epoch = 0;    // raised by RESET, so that older injected events are told apart
  QpAttributes attributes{};

  // Requester. Indexes run free: done <= current <= fetched <= posted.
  std::uint32_t sq_posted = 0;
  std::uint32_t sq_fetched = 0;
  std::uint32_t sq_current = 0;  // the request being cut into packets
  std::uint32_t sq_done = 0;
  std::uint32_t current_packet = 0;  // packets of it already sent
  SgeCursor gather;
  SgeCursor read_scatter;
  std::uint32_t psn_fetch = 0;  // first PSN of the next request
  std::uint32_t psn_sent = 0;   // one past the newest that was ever sent
  std::uint32_t psn_una = 0;    // oldest not acknowledged
  std::uint32_t psn_asked = 0;  // one past the newest that asked for an answer since it repeats
  std::uint32_t reads_out = 0;
  std::uint32_t read_repeated_psn = 0;
  std::uint8_t retries_left = 0;
  std::uint8_t rnr_retries_left = 0;
  bool rnr_waiting = false;
  bool read_repeated = false;  // the response at read_repeated_psn was asked for again
  bool drained = false;        // SQD: the event was sent
  emu::Cycle rnr_until = 0;
  emu::Cycle retry_at = emu::kNever;
  emu::Cycle power_at = emu::kNever;  // late real time looks for energy again then
  emu::Cycle pace_at = emu::kNever;
  emu::Cycle last_launch = 0;           // packets of a QP never overtake one another
  emu::Cycle timed_until = 0;           // the same as far as its program asked for it
  emu::Cycle repeat_launch = 0;         // the same since it began to repeat
  std::uint32_t packets_left_hca = 0;   // UC: of the request at sq_done, injected
  std::uint32_t in_wire = 0;            // handed to the attachment, not yet injected
  std::uint32_t questions_in_wire = 0;  // the same of packets that ask for an answer, trains as one
  // Of those the ones up to that which the retry timer waits for; kNone: nothing is asked. It runs
  // from 0 on.
  std::uint32_t questions_ahead = kNone;
  LazyArray<SendEntry> sends;           // sq_depth; written as a whole when one is fetched
  LazyArray<std::uint8_t> send_copies;  // sq_depth * sq_stride: what was fetched and checked

  // Responder.
  std::uint32_t epsn = 0;
  std::uint32_t msn = 0;
  std::uint32_t rq_next = 0;  // next receive to take
  std::uint32_t rq_done = 0;
  Receiving receiving = Receiving::nothing;
  bool have_recv = false;
  bool nak_sent = false;  // one NAK for each gap
  bool dead = false;      // a fatal NAK is on its way
  bool heard = false;     // communication established was told
  std::uint32_t recv_num_sge = 0;
  std::uint64_t recv_wr_id = 0;
  SgeCursor scatter;
  std::uint32_t received_bytes = 0;
  std::uint64_t write_address = 0;  // where the next bytes of an RDMA WRITE go
  std::uint32_t write_rkey = 0;
  std::uint32_t write_left = 0;
  emu::Cycle head_cycle = 0;
  std::array<Sge, kMaxSge> recv_sges{};
  emu::Cycle last_response_launch = 0;  // responses keep their order too
  std::uint32_t responses_first = 0;    // free running
  std::uint32_t responses_last = 0;
  std::array<Response, kResponsesMax> responses{};
  std::array<AtomicResult, kMaxRdAtomic> atomics{};  // the newest of them
  std::uint32_t atomics_done = 0;

  // Credit of an admitted real-time QP: packets.
  std::uint32_t credit_capacity = 0;  // C_i
  std::uint32_t credit_returned = 0;
  std::uint32_t credit_used = 0;
  std::uint32_t first_in_wire = 0;  // of in_wire, those that return a credit

  // Scheduler.
  QueueLink request_link;
  std::uint32_t turn_packets = 0;  // of its turn in the queue of requests
  QueueLink response_link;
  std::uint32_t response_turn_packets = 0;  // the same of responses
  // Of the queues that the links are in; traffic_class and lanes may change meanwhile (SQD).
  emu::TrafficClass request_class = emu::TrafficClass::best_effort;
  emu::TrafficClass response_class = emu::TrafficClass::best_effort;
  std::uint8_t request_lane = 0;
  std::uint8_t response_lane = 0;
  bool response_reads = false;  // it is in the queue of those that are read from

  // Admission; one connection id per granted or asked rate.
  std::uint32_t connection = kNone;  // index into Admission's table

  // XRC_RECV: it lives as long as somebody has it open.
  std::uint32_t xrc_domain = kNone;
  std::vector<QpOpener> openers;

  bool lost_completion = false;  // by a CQ that had overrun; until settle() deals with it

  SendEntry& entry(std::uint32_t index) { return sends[index & (layout.sq_depth - 1)]; }
  SendWqe& wqe(std::uint32_t index) {
    return *reinterpret_cast<SendWqe*>(
        &send_copies[std::size_t{index & (layout.sq_depth - 1)} * layout.sq_stride]);
  }
  // As the program wrote them, in the memory that it shares.
  const std::uint8_t* send_slot(std::uint32_t index) const {
    return region + layout.sq_offset +
           std::size_t{index & (layout.sq_depth - 1)} * layout.sq_stride;
  }
  const std::uint8_t* recv_slot(std::uint32_t index) const {
    return region + layout.rq_offset +
           std::size_t{index & (layout.rq_depth - 1)} * layout.rq_stride;
  }
  bool responses_empty() const { return responses_first == responses_last; }
  Response& response(std::uint32_t index) { return responses[index % kResponsesMax]; }
  // An unreliable send is done when its last packet has left.
  bool is_unreliable() const { return type == QpType::uc || type == QpType::ud; }
  bool is_xrc() const { return type == QpType::xrc_send || type == QpType::xrc_recv; }
  bool unacknowledged() const { return psn_una != psn_sent; }
};

}  // namespace hca
