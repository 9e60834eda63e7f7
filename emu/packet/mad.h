// Management datagrams (IBA 13.4, 14.2, 16.1): 256 bytes behind LRH, BTH and DETH; where their
// common header has what, and the numbers that both hcad and the subnet's agents speak of. All
// fields are big endian. Read by hca/host, hca/daemon and fabric/subnet.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "emu/packet/headers.h"

namespace emu {

inline constexpr std::size_t kMadBytes = 256;
using Mad = std::array<std::uint8_t, kMadBytes>;
// A packet of PacketKind::subnet: LRH, BTH, DETH, the datagram, both CRCs.
inline constexpr std::size_t kMadPacketBytes =
    kLrhBytes + kBthBytes + kDethBytes + kMadBytes + kIcrcBytes + kVcrcBytes;
static_assert(kMadPacketBytes == 290);

// A field of so many bytes, wherever it lies.
template <int Bytes>
constexpr std::uint64_t get_field(const std::uint8_t* at) {
  std::uint64_t value = 0;
  for (int i = 0; i < Bytes; ++i) value = value << 8 | at[i];
  return value;
}
template <int Bytes>
constexpr void put_field(std::uint8_t* at, std::uint64_t value) {
  for (int i = 0; i < Bytes; ++i) at[i] = static_cast<std::uint8_t>(value >> (8 * (Bytes - 1 - i)));
}

inline constexpr std::uint32_t kSubnetQp = 0;           // SMPs
inline constexpr std::uint32_t kGeneralServicesQp = 1;  // all others

// Offsets in the common header (IBA 13.4.2).
inline constexpr std::size_t kMadClassAt = 1;
inline constexpr std::size_t kMadClassVersionAt = 2;
inline constexpr std::size_t kMadMethodAt = 3;
inline constexpr std::size_t kMadStatusAt = 4;       // 16 bits; directed route: the first is "D"
inline constexpr std::size_t kMadTransactionAt = 8;  // 64 bits
inline constexpr std::size_t kMadAttributeAt = 16;   // 16 bits
inline constexpr std::size_t kMadModifierAt = 20;    // 32 bits

// Of SMPs by directed route (IBA 14.2.1.2); of these and of the performance class the data.
inline constexpr std::size_t kHopCountAt = 7;
inline constexpr std::size_t kDirectedSlidAt = 32;
inline constexpr std::size_t kDirectedDlidAt = 34;
inline constexpr std::size_t kMadDataAt = 64;
inline constexpr std::uint16_t kMadReturning = 0x8000;  // the direction bit, first of the status

enum MadClass : std::uint8_t {
  kClassSubnetLid = 0x01,       // SMPs by LID
  kClassSubnetAdmin = 0x03,     // SA
  kClassPerformance = 0x04,     // PMA
  kClassCommunication = 0x07,   // CM
  kClassSubnetDirected = 0x81,  // SMPs by directed route
};
enum MadMethod : std::uint8_t {
  kMadGet = 0x01,
  kMadSet = 0x02,
  kMadGetTable = 0x12,
  kMadDelete = 0x15,
  kMadGetResponse = 0x81,
  kMadGetTableResponse = 0x92,
};
inline constexpr std::uint8_t kMadResponseBit = 0x80;

// Whether the subnet's agents answer it (fabric/subnet), wherever it is sent to: the ports of HCAs
// have none of their own.
constexpr bool is_for_subnet(const Mad& mad) {
  const std::uint8_t mad_class = mad[kMadClassAt];
  return (mad[kMadMethodAt] & kMadResponseBit) == 0 &&
         (mad_class == kClassSubnetLid || mad_class == kClassSubnetDirected ||
          mad_class == kClassSubnetAdmin || mad_class == kClassPerformance);
}

}  // namespace emu
