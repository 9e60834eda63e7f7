// The two checksums of InfiniBand. ICRC: the CRC-32 of Ethernet over what no switch changes. VCRC:
// CRC-16 with polynomial 0x100B over everything before it. Carry-less multiplication where the
// processor has it, tables where not.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace emu {

// Both take and give the running remainder as it stands in the register (reflected, not
// complemented): start with all ones, complement at the end.
std::uint32_t crc32_update(std::uint32_t crc, std::span<const std::byte> bytes);
std::uint16_t crc16_update(std::uint16_t crc, std::span<const std::byte> bytes);

// How: by tables everywhere, by carry-less multiplication of 16 or of 64 bytes where the processor
// has it. The functions above choose the best; these are for the tests. CHECK: crc_can(way).
enum class CrcWay : std::uint8_t { table, multiply, multiply_wide };
bool crc_can(CrcWay way);
std::uint32_t crc32_update(CrcWay way, std::uint32_t crc, std::span<const std::byte> bytes);
std::uint16_t crc16_update(CrcWay way, std::uint16_t crc, std::span<const std::byte> bytes);

// `packet` runs from the LRH to the last byte before the ICRC; at least LRH and BTH (and the GRH
// if LRH says so) must be there.
std::uint32_t icrc_of(std::span<const std::byte> packet);
// `packet` runs from the LRH to the last byte of the ICRC.
std::uint16_t vcrc_of(std::span<const std::byte> packet);

}  // namespace emu
