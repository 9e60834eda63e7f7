// What enters and leaves the wire half of an HCA. A packet is one worm; its bytes stay with the
// caller under `handle` and never enter the engine. Written by fabricd, the simulation and the
// tests.
#pragma once

#include <cstdint>

#include "emu/base/units.h"
#include "emu/lane/policy.h"
#include "emu/wire/message.h"

namespace hca {

// A packet handed to the wire half of node `src`.
struct SendPacket {
  std::uint64_t cookie = 0;  // comes back in InjectedEvent and AnswerEvent; never read here
  emu::Cycle launch = 0;     // the head leaves no earlier; a cycle that has passed means now
  std::uint32_t handle = 0;  // the caller's name for the bytes
  std::uint16_t flits = 1;   // 1 ... kFlitsMax
  // Circuit switching: 0: the packet has a circuit of its own. 1 ... kStreamsMax: the stream whose
  // circuit it takes; a probe opens that, a release closes it behind itself.
  std::uint16_t stream = 0;
  emu::NodeId dest = 0;  // may be the sender itself
  emu::Vl vl_in = 0;     // lane at the HCA and at the input of the first router
  emu::Vl vl_out = 0;    // lane on every output the worm crosses
  emu::TrafficClass traffic_class = emu::TrafficClass::best_effort;
  emu::PacketKind kind = emu::PacketKind::data;
  // FGVC: cycles between flits of this message. Best effort: kVtickMax. Ignored by the others.
  emu::Vtick vtick = emu::kVtickMax;
};
inline constexpr std::uint16_t kFlitsMax = 4095;
inline constexpr std::uint16_t kStreamsMax = 112;  // with one for each lane: 128 queues

// The tail of a packet left its HCA.
struct InjectedEvent {
  std::uint64_t cookie;
  emu::Cycle head_cycle;
  emu::Cycle tail_cycle;
  std::uint32_t handle;
  std::uint16_t flits;
  emu::NodeId node;  // the sender
  emu::TrafficClass traffic_class;
  emu::PacketKind kind;
};

// The tail of a packet reached the HCA of `node`. `handle` is the caller's again. Of a probe there
// is an AnswerEvent instead, at the node that sent it.
struct DeliveredEvent {
  std::uint64_t cookie;
  emu::Cycle launch;      // cycle at which it was ready to leave: max(launch asked, submitted)
  emu::Cycle head_cycle;  // its head left the source HCA
  emu::Cycle tail_cycle;  // its tail reached this HCA
  std::uint32_t handle;
  std::uint16_t flits;
  emu::NodeId node;  // the receiver
  emu::NodeId src;
  emu::Vl vl;  // lane it arrived on
  emu::TrafficClass traffic_class;
  emu::PacketKind kind;  // data or release
};

// The answer to a probe reached the node that had sent it. The answer crosses the fabric as a
// packet of `answer_flits` on the probe's lane, made by the wire half of the probe's destination;
// `handle` is the probe's and is the caller's again.
struct AnswerEvent {
  std::uint64_t cookie;  // of the probe
  emu::Cycle cycle;      // its tail reached the HCA
  std::uint32_t handle;
  emu::RouterId rejected_by;  // emu::kNoRouter: accepted
  emu::NodeId node;           // the node that had sent the probe
  emu::NodeId dest;           // the node that answered
};

}  // namespace hca
