// Limits of the device: what hcad grants and what the verbs library reports as device attributes.
// Each is a constant with its reason.
#pragma once

#include <cstdint>

namespace hca {

inline constexpr std::uint32_t kAbiVersion = 10;  // raised with any change of a layout in this room

inline constexpr std::uint32_t kMaxSge = 32;           // what UCX and libfabric ask for at most
inline constexpr std::uint32_t kMaxInline = 1024;      // perftest's largest inline default is 912
inline constexpr std::uint32_t kMaxQpWr = 32768;       // UCX asks 4096; a page of SQ stays < 64 MiB
inline constexpr std::uint32_t kMaxCqe = 1u << 20;     // ofi_rxm asks for 262144
inline constexpr std::uint32_t kQpSlots = 16384;       // indexes of 14 bits in a QP number
inline constexpr std::uint32_t kMaxQp = 4096 - 2;      // 0 and 1 are management's (IBA 3.9.4)
inline constexpr std::uint32_t kMaxCq = 4096;          // of a node, as all that follow
inline constexpr std::uint32_t kMaxMr = 16384 - 1;     // index of 24 bits in a key; 0 names none
inline constexpr std::uint32_t kMaxPd = 1024;          //
inline constexpr std::uint32_t kMaxSrq = 1024 - 1;     // 0 names none
inline constexpr std::uint32_t kMaxSrqWr = 32768;      // as of a QP
inline constexpr std::uint32_t kMaxRdAtomic = 16;      // outstanding RDMA READs either way per QP
inline constexpr std::uint32_t kMaxMcastGroups = 256;  // of a node
inline constexpr std::uint32_t kMaxMcastQps = 240;     // attached to one group, as adapters have
inline constexpr std::uint64_t kMaxDmBytes = 1u << 20;         // what adapters have, about
inline constexpr std::uint64_t kMaxMrBytes = 1ull << 40;       //
inline constexpr std::uint32_t kMaxMessageBytes = 1u << 31;    // IBA: 2^31
inline constexpr std::uint32_t kMaxMessagePackets = 1u << 23;  // half of the PSNs (IBA 9.7.2)
inline constexpr std::uint32_t kGrhBytes = 40;            // UD receives leave room for it, always
inline constexpr std::uint32_t kDoorbellEntries = 32768;  // >= kQpSlots: one entry per rung QP
// A QP's handle is its number; one that is opened once more (XRC) has that opening's above it.
inline constexpr std::uint32_t kQpNumberMask = 0xffffff;
inline constexpr int kQpOpeningShift = 24;
inline constexpr std::uint32_t kMaxQpOpenings = 256;  // a program each would be plenty
static_assert(kDoorbellEntries >= kQpSlots && kMaxQp <= kQpSlots,
              "a rung QP has at most one entry in the ring");

}  // namespace hca
