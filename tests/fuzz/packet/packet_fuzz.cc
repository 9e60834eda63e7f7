// Packets and counter pages are taken apart; whatever is accepted lies inside the bytes given, and
// an accepted packet is built again to the same bytes.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "emu/base/check.h"
#include "emu/metrics/read.h"
#include "emu/packet/build.h"
#include "emu/packet/parse.h"

namespace {

void try_packet(std::span<const std::byte> bytes) {
  (void)emu::check_crcs(bytes);
  std::vector<std::byte> captured(bytes.begin(), bytes.end());
  emu::add_left_crcs(captured);
  emu::ParsedPacket parsed;
  if (emu::parse_packet(bytes, parsed) != emu::ParseStatus::ok) return;
  CHECK(parsed.payload_offset + parsed.payload_bytes + 6 <= bytes.size());
  std::vector<std::byte> slot(bytes.size() + 64);
  const std::size_t at = emu::write_headers(slot, parsed.headers, parsed.payload_bytes);
  CHECK(at == parsed.payload_offset);
  std::memcpy(&slot[at], &bytes[at], parsed.payload_bytes);
  CHECK(emu::seal_packet(slot, at + parsed.payload_bytes) == bytes.size());
  CHECK(emu::check_crcs(std::span(slot).first(bytes.size())) == emu::CrcStatus::ok);
  emu::ParsedPacket again;
  CHECK(emu::parse_packet(std::span(slot).first(bytes.size()), again) == emu::ParseStatus::ok);
  CHECK(again.headers.bth.psn == parsed.headers.bth.psn &&
        again.headers.lrh.dlid == parsed.headers.lrh.dlid &&
        again.headers.reth.address == parsed.headers.reth.address);
}

// Of an accepted train every packet is one.
void try_train(std::span<const std::byte> bytes) {
  for (const std::uint32_t packets : {0U, 2U, 3U, 16U, 0x10000U}) {
    emu::ParsedPacket train;
    if (emu::parse_train(bytes, packets, train) != emu::ParseStatus::ok) continue;
    CHECK(train.payload_offset + train.payload_bytes <= bytes.size());
    std::vector<std::byte> slot(train.full_payload_bytes + emu::kTrainHeadBytes);
    for (std::uint32_t i = 0; i < packets; ++i) {
      const auto cut = std::span(slot).first(emu::cut_packet(bytes, train, i, slot));
      emu::ParsedPacket parsed;
      CHECK(emu::parse_packet(cut, parsed) == emu::ParseStatus::ok);
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::span<const std::byte> bytes(reinterpret_cast<const std::byte*>(data), size);
  try_packet(bytes);
  try_train(bytes);
  // Lengths that fit by luck are rare: give the LRH the one that is right.
  if (size >= 26 && size <= 8190) {
    std::vector<std::byte> fitted(bytes.begin(), bytes.end() - (size - 2) % 4);
    const std::size_t words = (fitted.size() - 2) / 4;
    fitted[4] = static_cast<std::byte>(words >> 8);
    fitted[5] = static_cast<std::byte>(words);
    fitted[0] &= std::byte{0xf0};
    try_packet(fitted);
    if (size > emu::kTrainHeadBytes) {  // as a train of two
      const std::size_t half = (size - emu::kTrainHeadBytes + 7) / 8 + 8;
      fitted[4] = static_cast<std::byte>(half >> 8);
      fitted[5] = static_cast<std::byte>(half);
      try_train(fitted);
    }
  }
  const auto page = emu::parse_page(bytes);
  if (page) {
    for (const auto& series : page->series) {
      if (!series.words.empty()) (void)emu::summarize_histogram(series.words);
    }
  }
  return 0;
}
