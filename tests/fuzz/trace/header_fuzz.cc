// What a sink and a generator read from memory that a peer filled: frame headers, load stamps,
// lines of the rendezvous and of a plan. The header's checksum is mended, so that what lies behind
// it is reached.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

#include "emu/base/check.h"
#include "tools/load/message.h"
#include "tools/replay/deadline.h"
#include "tools/replay/frame_header.h"
#include "tools/replay/plan.h"
#include "tools/replay/words.h"

namespace {

void frame(std::vector<std::uint8_t> bytes, bool mend) {
  if (mend && bytes.size() >= tools::kFrameHeaderBytes) {
    const std::uint32_t crc = tools::crc32c(std::span(bytes).first(60));
    std::memcpy(bytes.data() + 60, &crc, sizeof crc);
  }
  const auto header = tools::read_frame_header(bytes);
  if (!header) return;
  CHECK(header->bytes + tools::kFrameHeaderBytes == bytes.size());
  const tools::FrameRate rate{.frames = header->rate_frames, .seconds = header->rate_seconds};
  tools::DeadlineMeter meter(rate, header->frame_ns);
  meter.arrive(header->number, header->frame_ns + 1);
  meter.arrive(header->number / 2, header->frame_ns);
  CHECK(meter.delivered() >= 1);
}

void stamp(std::vector<std::uint8_t> bytes, bool mend) {
  if (mend && bytes.size() >= tools::kLoadStampBytes) {
    const std::uint32_t crc = tools::crc32c(std::span(bytes).first(36));
    std::memcpy(bytes.data() + 36, &crc, sizeof crc);
  }
  const auto read = tools::read_load_stamp(bytes);
  if (read) CHECK(tools::corrupt_load_bytes(*read, bytes) <= bytes.size());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::vector<std::uint8_t> bytes(data + 1, data + size);
  const bool mend = (data[0] & 4) != 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0] & 3) {
    case 0:
      frame(bytes, mend);
      break;
    case 1:
      stamp(bytes, mend);
      break;
    case 2: {
      const auto plan = tools::parse_plan(text, "fuzz");
      if (plan) CHECK(!plan->empty() && plan->size() <= tools::kStreamsMax);
      break;
    }
    default: {
      const auto words = tools::Words::parse(text, " ");
      if (const auto number = words.number("qpn", 0xffffff)) CHECK(*number <= 0xffffff);
    }
  }
  return 0;
}
