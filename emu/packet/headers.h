// InfiniBand headers as plain values; build.h and parse.h put them on the wire, big endian.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "emu/base/units.h"
#include "emu/packet/opcode.h"

namespace emu {

inline constexpr std::size_t kLrhBytes = 8;
inline constexpr std::size_t kGrhBytes = 40;
inline constexpr std::size_t kBthBytes = 12;
inline constexpr std::size_t kDethBytes = 8;
inline constexpr std::size_t kRethBytes = 16;
inline constexpr std::size_t kAtomicEthBytes = 28;
inline constexpr std::size_t kAethBytes = 4;
inline constexpr std::size_t kAtomicAckEthBytes = 8;
inline constexpr std::size_t kImmDtBytes = 4;
inline constexpr std::size_t kIethBytes = 4;
inline constexpr std::size_t kXrcEthBytes = 4;
inline constexpr std::size_t kIcrcBytes = 4;
inline constexpr std::size_t kVcrcBytes = 2;
// What an RC packet carries beside its payload in the middle of a message.
inline constexpr std::size_t kRcOverheadBytes = kLrhBytes + kBthBytes + kIcrcBytes + kVcrcBytes;
static_assert(kRcOverheadBytes == 26);
// And at most: with a GRH, by XRC, the first and only one of an RDMA WRITE with immediate data.
inline constexpr std::size_t kRcOverheadBytesMost =
    kRcOverheadBytes + kGrhBytes + kXrcEthBytes + kRethBytes + kImmDtBytes;

inline constexpr std::uint16_t kDefaultPkey = 0xffff;
inline constexpr std::uint32_t kMask24 = 0xffffff;  // QP numbers, PSNs, MSNs
inline constexpr Lid kPermissiveLid = 0xffff;
// Of a multicast group (IBA 4.1.3).
constexpr bool is_group(Lid lid) { return lid >= 0xc000 && lid != kPermissiveLid; }

using Gid = std::array<std::uint8_t, 16>;
// The LID of a group follows from its GID alone, so that rdma_cm of every node and the subnet's
// administration say the same without a list that they share. Several groups may have one:
// receivers go by the GID.
constexpr Lid group_lid_of(const Gid& gid) {
  constexpr Lid kFirst = 0xc000;
  constexpr std::uint32_t kCount = 0x3ffe;
  const std::uint32_t low = std::uint32_t{gid[12]} << 24 | std::uint32_t{gid[13]} << 16 |
                            std::uint32_t{gid[14]} << 8 | gid[15];
  constexpr std::uint32_t kLow28 = 0x0fffffff;  // what an IPv4 address leaves of itself in a GID
  return static_cast<Lid>(kFirst + (low & kLow28) % kCount);
}

struct Lrh {
  Vl vl = 0;
  std::uint8_t sl = 0;
  Lid dlid = 0;
  Lid slid = 0;
};

struct Grh {
  std::uint8_t traffic_class = 0;
  std::uint32_t flow_label = 0;  // 20 bits
  std::uint8_t hop_limit = 64;
  Gid sgid{};
  Gid dgid{};
};

struct Bth {
  Opcode opcode = Opcode::rc_send_only;
  bool solicited = false;  // wakes the receiver's completion channel
  bool migrated = true;
  bool fecn = false;
  bool becn = false;
  bool ack_request = false;
  std::uint16_t pkey = kDefaultPkey;
  std::uint32_t dest_qp = 0;  // 24 bits
  std::uint32_t psn = 0;      // 24 bits
};

struct Deth {
  std::uint32_t qkey = 0;
  std::uint32_t src_qp = 0;  // 24 bits
};

struct Reth {
  std::uint64_t address = 0;
  std::uint32_t rkey = 0;
  std::uint32_t length = 0;  // bytes of the whole message
};

struct AtomicEth {
  std::uint64_t address = 0;
  std::uint32_t rkey = 0;
  std::uint64_t swap_or_add = 0;
  std::uint64_t compare = 0;
};

struct Aeth {
  std::uint8_t syndrome = 0;
  std::uint32_t msn = 0;  // 24 bits
};

// Everything a packet may carry in front of its payload. Which extended headers are on the wire
// follows from the opcode; the others are ignored (build) or left as they were (parse).
struct PacketHeaders {
  Lrh lrh;
  bool has_grh = false;
  Grh grh;
  Bth bth;
  Deth deth;
  Reth reth;
  AtomicEth atomic;
  Aeth aeth;
  std::uint64_t atomic_original = 0;  // AtomicAckETH
  std::uint32_t immediate = 0;        // host order
  std::uint32_t invalidate_rkey = 0;  // IETH
  std::uint32_t xrc_srq = 0;          // XRCETH: number of the SRQ, 24 bits
};

// AETH syndromes (IBA 9.7.5.1.2): the upper three bits say what, the lower five how.
inline constexpr std::uint8_t kSyndromeKindMask = 0xe0;
inline constexpr std::uint8_t kSyndromeAck = 0x00;     // | credit count; 31: no end-to-end credits
inline constexpr std::uint8_t kSyndromeRnrNak = 0x20;  // | timer
inline constexpr std::uint8_t kSyndromeNak = 0x60;     // | NakCode
inline constexpr std::uint8_t kAckNoCredits = 0x1f;

enum class NakCode : std::uint8_t {
  psn_sequence_error = 0,
  invalid_request = 1,
  remote_access_error = 2,
  remote_operational_error = 3,
};

// IBA table 45: how long a sender waits after an RNR NAK with this timer value (5 bits).
EmuNs rnr_timer_ns(std::uint8_t timer);

// Packet sequence numbers live on a circle of 2^24.
constexpr std::uint32_t psn_add(std::uint32_t psn, std::uint32_t count) {
  return (psn + count) & kMask24;
}
// a - b on the circle: negative when a is older.
constexpr std::int32_t psn_diff(std::uint32_t a, std::uint32_t b) {
  return static_cast<std::int32_t>((a - b) << 8) >> 8;
}

}  // namespace emu
