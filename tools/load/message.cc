#include "tools/load/message.h"

#include <array>
#include <cstring>

#include "emu/base/check.h"
#include "emu/base/prng.h"
#include "tools/replay/frame_header.h"

namespace tools {
namespace {

constexpr std::size_t kBodyMax = 8192;
constexpr std::size_t kShifts = 1024;

// One block of random bytes; message n carries it from place n mod kShifts on, so checking is one
// memcmp and neighbours in the sequence differ in every byte.
const std::uint8_t* body_of(std::uint64_t number) {
  static const auto block = [] {
    std::array<std::uint8_t, kBodyMax + kShifts> bytes{};
    emu::Prng prng(kLoadMagic);
    for (auto& byte : bytes) byte = static_cast<std::uint8_t>(prng() >> 56);
    return bytes;
  }();
  return block.data() + number % kShifts;
}

}  // namespace

void write_load_message(LoadStamp stamp, std::span<std::uint8_t> to) {
  CHECK(to.size() >= kLoadStampBytes && to.size() <= kBodyMax);
  stamp.bytes = static_cast<std::uint32_t>(to.size());
  std::memcpy(to.data(), &stamp, kLoadStampBytes);
  stamp.crc = crc32c(to.first(offsetof(LoadStamp, crc)));
  std::memcpy(to.data(), &stamp, kLoadStampBytes);
  std::memcpy(to.data() + kLoadStampBytes, body_of(stamp.number), to.size() - kLoadStampBytes);
}

std::optional<LoadStamp> read_load_stamp(std::span<const std::uint8_t> message) {
  if (message.size() < kLoadStampBytes || message.size() > kBodyMax) return std::nullopt;
  LoadStamp stamp;
  std::memcpy(&stamp, message.data(), kLoadStampBytes);
  if (stamp.magic != kLoadMagic || stamp.bytes != message.size()) return std::nullopt;
  if (stamp.crc != crc32c(message.first(offsetof(LoadStamp, crc)))) return std::nullopt;
  return stamp;
}

std::uint64_t corrupt_load_bytes(const LoadStamp& stamp, std::span<const std::uint8_t> message) {
  const auto body = message.subspan(kLoadStampBytes);
  const std::uint8_t* good = body_of(stamp.number);
  if (std::memcmp(body.data(), good, body.size()) == 0) return 0;
  std::uint64_t different = 0;
  for (std::size_t i = 0; i < body.size(); ++i) different += body[i] != good[i] ? 1 : 0;
  return different;
}

}  // namespace tools
