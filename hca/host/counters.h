// What a Host counts, in plain u64 with one writer; hca/daemon copies it to the metric page.
#pragma once

#include <array>
#include <cstdint>

#include "emu/base/units.h"

namespace hca {

struct ClassCounters {
  std::uint64_t packets_sent = 0;  // handed to the attachment
  std::uint64_t bytes_sent = 0;    // payload
  std::uint64_t packets_received = 0;
  std::uint64_t bytes_received = 0;
  std::uint64_t latency_cycles_total = 0;  // head injected -> tail arrived, of received packets
  std::uint64_t messages_completed = 0;    // send work requests completed with success
};

struct HostCounters {
  std::array<ClassCounters, emu::kClassCount> by_class{};
  // What passed the port, as the fabric counts it: in whole flits, nothing from the node to itself
  // or to the subnet's agents. The fabric's own are not among it, answers to probes and notices.
  // A message to a group is as many packets as it has copies that leave: each takes the link's
  // time.
  std::uint64_t port_packets_sent = 0;
  std::uint64_t port_flits_sent = 0;
  std::uint64_t port_packets_received = 0;
  std::uint64_t port_flits_received = 0;
  std::uint64_t port_multicast_sent = 0;  // packets, of those of the port
  std::uint64_t port_multicast_received = 0;
  std::uint64_t acks_sent = 0;
  std::uint64_t naks_sent = 0;
  std::uint64_t rnr_naks_sent = 0;
  std::uint64_t naks_received = 0;
  std::uint64_t rnr_naks_received = 0;
  std::uint64_t timeouts = 0;
  std::uint64_t packets_retransmitted = 0;
  std::uint64_t duplicates_received = 0;
  std::uint64_t out_of_sequence_received = 0;
  std::uint64_t dropped_bad_packet = 0;  // malformed, wrong CRC, unknown opcode
  std::uint64_t dropped_no_qp = 0;       // no such QP, wrong state, wrong sender
  std::uint64_t dropped_bad_key = 0;     // Q_Key or P_Key mismatch
  std::uint64_t dropped_no_receive = 0;  // UC or UD without a receive work request, or a short one
  std::uint64_t dropped_messages = 0;    // UC: begun and not finished
  std::uint64_t bad_wqes = 0;            // refused work requests
  std::uint64_t ring_faults = 0;         // impossible indexes in an application's rings
  std::uint64_t memory_faults = 0;       // a client's address was not there
  std::uint64_t cq_overruns = 0;
  std::uint64_t credit_waits = 0;  // best effort met an empty credit account
  std::uint64_t power_waits = 0;   // best-effort packets launched later for want of energy
  std::uint64_t power_wait_cycles = 0;
  std::uint64_t packets_discarded = 0;  // lost with a fabric that went away
  std::uint64_t slot_waits = 0;         // the attachment had no free packet slot
  std::uint64_t lane_waits = 0;         // a lane had no room for more packets at the wire
  std::uint64_t payloads_lent = 0;  // of trains, read by the receiver where the program has them
  std::uint64_t admissions_asked = 0;
  std::uint64_t admissions_granted = 0;
  std::uint64_t admissions_refused_hca = 0;
  std::uint64_t admissions_refused_router = 0;
  std::uint64_t admissions_answered = 0;     // probes with an ACK or NACK ...
  std::uint64_t admission_cycles_total = 0;  // ... and the time from asking until then, of them all
  std::uint64_t best_effort_outstanding = 0;  // packets handed on, not yet injected
  std::uint64_t reserved_bps = 0;             // booked by this node's connections
};

}  // namespace hca
