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

// The same by tables alone: the fallback, and the model in the tests.
std::uint32_t crc32_update_table(std::uint32_t crc, std::span<const std::byte> bytes);
std::uint16_t crc16_update_table(std::uint16_t crc, std::span<const std::byte> bytes);

// `packet` runs from the LRH to the last byte before the ICRC; at least LRH and BTH (and the GRH
// if LRH says so) must be there.
std::uint32_t icrc_of(std::span<const std::byte> packet);
// `packet` runs from the LRH to the last byte of the ICRC.
std::uint16_t vcrc_of(std::span<const std::byte> packet);

}  // namespace emu
