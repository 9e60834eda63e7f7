// What hcad and fabricd say to each other, whatever the way to attach: these structs lie in the
// shared rings of fabric/port/shm and, with the packet's bytes behind them, in attachment frames
// (emu/wire/frame.h). Plain values, little endian, no padding; a change raises kMessageVersion.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "emu/base/units.h"

namespace emu {

inline constexpr std::uint32_t kMessageVersion = 6;

// One slot of packet memory: any InfiniBand packet (4096 payload, every header, both CRCs) fits.
inline constexpr std::size_t kPacketBytesMax = 4352;
static_assert(kPacketBytesMax % 64 == 0, "slots start on cache lines");

// Where no flit is modelled, packets of one message that follow one another are handed on as one, a
// train (emu/packet/parse.h), in neighbouring slots: what large sends are to network cards.
inline constexpr std::size_t kTrainSlots = 16;
inline constexpr std::size_t kTrainBufferBytes = kTrainSlots * kPacketBytesMax;
inline constexpr std::uint32_t kTrainPacketsMax = 16;
inline constexpr std::uint32_t kTrainPayloadMax = 65536;  // the rest is for headers

enum class PacketKind : std::uint8_t {
  data = 0,     // an InfiniBand packet
  probe = 1,    // body is a ProbeBody; books bandwidth and power hop by hop on VL15
  release = 2,  // body is a ProbeBody; gives back what the probe of that connection booked
  // A management datagram (emu/packet/mad.h) for the subnet's agents: answered at the edge of the
  // fabric, in its own buffer, which is delivered to its sender; unchanged, if nobody is there who
  // would answer. `dest` is the sender.
  subnet = 3,
};
inline constexpr int kPacketKindCount = 4;

// hcad -> fabric: this packet leaves the HCA at `launch_cycle`, or as soon as it can if that has
// passed. The buffer belongs to the fabric until Free names it.
struct TxDesc {
  std::uint64_t cookie;        // the sender's own: comes back in Injected, never read by the fabric
  Cycle launch_cycle;          // 0: as soon as possible
  std::uint16_t buffer;        // index of a packet slot; not used inside frames (bytes follow)
  std::uint16_t more_packets;  // of a train, behind the first
  std::uint16_t length;        // bytes of the packet; words in the buffer of a train
  std::uint16_t flits;         // 1 ... ; the worm's length on every link, or of all of a train's
  NodeId dest;                 // attached HCA that the worm ends at
  Vl vl_in;                    // lane at the HCA and at router inputs
  Vl vl_out;                   // lane on every output it crosses; same class as vl_in
  TrafficClass traffic_class;
  PacketKind kind;
  // FGVC (MW 3.2): cycles between its flits at the rate its connection has booked; 0: the fabric's
  // default of the lane.
  std::uint16_t vtick;
};

// Body of a probe or release packet: the bytes in its buffer. Read once, where it enters the
// fabric.
struct ProbeBody {
  std::uint64_t connection;  // the sender's id; unique per source node, so (node, id) is the key
  std::uint64_t rate_bps;    // reserved on every link of the path
  std::uint64_t peak_bps;    // for the limit of high priority; power goes by the mean rate
  NodeId source;             // overwritten by the fabric with the node that really sent it
  NodeId dest;
  Vl vl;                     // lane its packets will use: weights of the arbiters go by it
  Vl vl_in;                  // the same at the HCA and at the first router's input
  std::uint8_t reserved[2];  // 0
};

// fabric -> hcad: a packet arrived. The buffer belongs to hcad until it names it in Free.
struct RxDesc {
  Cycle head_cycle;      // its head flit left the source HCA
  Cycle arrival_cycle;   // its tail flit reached this HCA
  std::uint32_t buffer;  // index of a packet slot; not used inside frames (bytes follow)
  std::uint16_t length;
  std::uint16_t flits;
  NodeId src;  // the attachment it came in by: cannot be forged by the sender
  Vl vl;
  TrafficClass traffic_class;
  std::uint16_t more_packets;  // of a train, behind the first
  std::uint16_t reserved;      // 0
};

// fabric -> hcad: the tail of this packet left the HCA. Turns into a credit of the congestion
// control (hca/host/credit) and feeds power's account.
struct Injected {
  std::uint64_t cookie;
  Cycle tail_cycle;
  std::uint16_t flits;
  TrafficClass traffic_class;
  PacketKind kind;
  std::uint32_t reserved;  // 0
};

enum class Verdict : std::uint8_t {
  ack = 0,
  nack = 1,
  again = 2,  // links changed: nothing is booked any more, ask on today's way
};
inline constexpr RouterId kNoRouter = 0xffff;

// fabric -> hcad: what became of a probe, or of what one had booked.
struct Answer {
  std::uint64_t connection;
  Cycle cycle;           // when the answer reached this HCA
  RouterId rejected_by;  // the router that refused; kNoRouter unless Verdict::nack
  Verdict verdict;
  std::uint8_t reserved[5];  // 0
};

// Either way, shared memory only: the buffer returns to the side whose region it lies in.
struct Free {
  std::uint32_t buffer;
};

// The layout is the contract: checked here once for the rings and the frames.
static_assert(sizeof(TxDesc) == 32 && std::has_unique_object_representations_v<TxDesc>);
static_assert(offsetof(TxDesc, launch_cycle) == 8 && offsetof(TxDesc, buffer) == 16 &&
              offsetof(TxDesc, more_packets) == 18 && offsetof(TxDesc, length) == 20 &&
              offsetof(TxDesc, flits) == 22 && offsetof(TxDesc, dest) == 24 &&
              offsetof(TxDesc, vl_in) == 26 && offsetof(TxDesc, vl_out) == 27 &&
              offsetof(TxDesc, traffic_class) == 28 && offsetof(TxDesc, kind) == 29 &&
              offsetof(TxDesc, vtick) == 30);
static_assert(sizeof(ProbeBody) == 32 && std::has_unique_object_representations_v<ProbeBody>);
static_assert(offsetof(ProbeBody, rate_bps) == 8 && offsetof(ProbeBody, peak_bps) == 16 &&
              offsetof(ProbeBody, source) == 24 && offsetof(ProbeBody, dest) == 26 &&
              offsetof(ProbeBody, vl) == 28 && offsetof(ProbeBody, vl_in) == 29);
static_assert(sizeof(RxDesc) == 32 && std::has_unique_object_representations_v<RxDesc>);
static_assert(offsetof(RxDesc, arrival_cycle) == 8 && offsetof(RxDesc, buffer) == 16 &&
              offsetof(RxDesc, length) == 20 && offsetof(RxDesc, flits) == 22 &&
              offsetof(RxDesc, src) == 24 && offsetof(RxDesc, vl) == 26 &&
              offsetof(RxDesc, traffic_class) == 27 && offsetof(RxDesc, more_packets) == 28 &&
              offsetof(RxDesc, reserved) == 30);
static_assert(sizeof(Injected) == 24 && std::has_unique_object_representations_v<Injected>);
static_assert(offsetof(Injected, tail_cycle) == 8 && offsetof(Injected, flits) == 16 &&
              offsetof(Injected, traffic_class) == 18 && offsetof(Injected, kind) == 19 &&
              offsetof(Injected, reserved) == 20);
static_assert(sizeof(Answer) == 24 && std::has_unique_object_representations_v<Answer>);
static_assert(offsetof(Answer, cycle) == 8 && offsetof(Answer, rejected_by) == 16 &&
              offsetof(Answer, verdict) == 18 && offsetof(Answer, reserved) == 19);
static_assert(sizeof(Free) == 4);

// Slots side by side that the buffer has.
template <class Desc>
std::size_t slots_of(const Desc& desc) {
  return desc.more_packets == 0 ? 1 : kTrainSlots;
}

// Bytes in the buffer. The lengths of trains count words, as an LRH's does.
template <class Desc>
std::size_t buffer_bytes(const Desc& desc) {
  return desc.more_packets == 0 ? desc.length : std::size_t{desc.length} * 4;
}

}  // namespace emu
