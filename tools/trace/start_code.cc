#include "tools/trace/start_code.h"

#include <algorithm>
#include <bitset>
#include <cstring>

namespace tools {
namespace {

constexpr std::uint8_t kPicture = 0x00;
constexpr std::uint8_t kSliceLast = 0xAF;
constexpr std::uint8_t kSequence = 0xB3;
constexpr std::uint8_t kExtension = 0xB5;

// Index of the code byte after the next 00 00 01, or the size if there is none.
std::size_t next_code(std::span<const std::uint8_t> bytes, std::size_t from) {
  for (std::size_t i = from + 2; i + 1 < bytes.size(); ++i) {
    const void* one = std::memchr(bytes.data() + i, 1, bytes.size() - i);
    if (one == nullptr) break;
    i = static_cast<std::size_t>(static_cast<const std::uint8_t*>(one) - bytes.data());
    if (i + 1 < bytes.size() && bytes[i - 1] == 0 && bytes[i - 2] == 0) return i + 1;
  }
  return bytes.size();
}

// Bits [first, first + count) of what follows the code byte, as far as there are bytes.
std::uint32_t bits(std::span<const std::uint8_t> body, std::size_t first, std::size_t count) {
  std::uint32_t value = 0;
  for (std::size_t i = first; i < first + count; ++i) {
    const std::size_t byte = i / 8;
    const std::uint32_t bit = byte < body.size() ? (body[byte] >> (7 - i % 8)) & 1U : 0U;
    value = value << 1 | bit;
  }
  return value;
}

class Scanner {
 public:
  void code(std::uint8_t code, std::span<const std::uint8_t> body) {
    if (code == kPicture) {
      picture(body);
    } else if (code <= kSliceLast) {
      rows_.set(code);
    } else if (code == kSequence) {
      facts_.sequence_header = true;
      facts_.width = bits(body, 0, 12);
      facts_.height = bits(body, 12, 12);
    } else if (code == kExtension) {
      extension(body);
    }
  }
  FrameFacts finish() {
    end_picture();
    return facts_;
  }

 private:
  void picture(std::span<const std::uint8_t> body) {
    end_picture();
    if (facts_.pictures++ == 0) facts_.picture_code = bits(body, 10, 3);
  }
  void extension(std::span<const std::uint8_t> body) {
    constexpr std::uint32_t kSequenceExtension = 1;
    constexpr std::uint32_t kPictureCodingExtension = 8;
    const std::uint32_t id = bits(body, 0, 4);
    if (id == kSequenceExtension && facts_.pictures == 0) {
      facts_.sequence_extension = true;
      // The two upper bits of each side; the lower twelve stood in the sequence header.
      facts_.width |= bits(body, 15, 2) << 12;
      facts_.height |= bits(body, 17, 2) << 12;
    } else if (id == kPictureCodingExtension) {
      constexpr std::uint32_t kFramePicture = 3;
      if (bits(body, 22, 2) != kFramePicture) facts_.field_pictures = true;
    }
  }
  void end_picture() {
    facts_.slice_rows = std::max(facts_.slice_rows, static_cast<std::uint32_t>(rows_.count()));
    rows_.reset();
  }

  FrameFacts facts_;
  std::bitset<256> rows_;
};

}  // namespace

FrameFacts scan_frame(std::span<const std::uint8_t> bytes) {
  Scanner scanner;
  for (std::size_t i = next_code(bytes, 0); i < bytes.size(); i = next_code(bytes, i)) {
    scanner.code(bytes[i], bytes.subspan(i + 1));
  }
  return scanner.finish();
}

}  // namespace tools
