// Records: the messages of emu/wire/message.h as they lie in the stream of a session. In: the bytes
// of one record. Out: a message whose every field has been checked. Called by both ends of UDP.
//
//   RecordHeader (4) | message struct | packet bytes, if any | zeros to a multiple of 4
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "emu/wire/message.h"

namespace emu {

enum class RecordKind : std::uint8_t {
  tx = 1,        // hcad -> fabric: TxDesc, packet
  rx = 2,        // fabric -> hcad: RxDesc, packet
  injected = 3,  // fabric -> hcad: Injected
  answer = 4,    // fabric -> hcad: Answer
};
inline constexpr int kRecordKindMax = 4;

struct RecordHeader {
  std::uint16_t length;  // of the body, without header and padding
  RecordKind kind;
  std::uint8_t reserved;  // 0
};
static_assert(sizeof(RecordHeader) == 4);

inline constexpr std::size_t kRecordBodyMax = sizeof(TxDesc) + kPacketBytesMax;
static_assert(kRecordBodyMax <= UINT16_MAX && kRecordBodyMax >= sizeof(RxDesc) + kPacketBytesMax);

constexpr std::size_t padded(std::size_t bytes) { return (bytes + 3) & ~std::size_t{3}; }
constexpr std::size_t record_bytes(std::size_t body) { return sizeof(RecordHeader) + padded(body); }

// False: the stream is broken here and the session must end.
constexpr bool well_formed(const RecordHeader& header) {
  return header.reserved == 0 && static_cast<int>(header.kind) >= 1 &&
         static_cast<int>(header.kind) <= kRecordKindMax && header.length <= kRecordBodyMax;
}

struct TxRecord {
  TxDesc desc;
  std::span<const std::byte> packet;
};
struct RxRecord {
  RxDesc desc;
  std::span<const std::byte> packet;
};

// Nothing: the body does not hold what its kind promises.
std::optional<TxRecord> parse_tx(std::span<const std::byte> body);
std::optional<RxRecord> parse_rx(std::span<const std::byte> body);
std::optional<Injected> parse_injected(std::span<const std::byte> body);
std::optional<Answer> parse_answer(std::span<const std::byte> body);

// The fields of a descriptor that arrived from elsewhere are in range (rings and frames alike).
bool in_range(const TxDesc& desc);
bool in_range(const RxDesc& desc);

}  // namespace emu
