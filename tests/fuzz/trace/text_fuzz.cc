// Text traces: whatever comes, frames that make sense or an error; what is accepted can be written
// and read again.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "emu/base/check.h"
#include "tools/trace/text.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  tools::TextOptions options;
  // The first byte chooses what the user says.
  if ((data[0] & 8) != 0) options.layout = static_cast<tools::TraceLayout>(data[0] & 3);
  if ((data[0] & 16) != 0) options.unit = static_cast<tools::SizeUnit>(data[0] >> 5 & 1);
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  const auto clip = tools::parse_trace(text, "fuzz", options);
  if (!clip) {
    CHECK(clip.error().message.find('\n') == std::string::npos);
    return 0;
  }
  std::uint64_t offset = 0;
  for (const tools::Frame& frame : clip->frames) {
    CHECK(frame.offset == offset && frame.bytes <= tools::kTraceFrameBytesMax);
    offset += frame.bytes;
  }
  const auto again = tools::parse_trace(tools::write_trace(*clip), "again");
  CHECK(again && again->frames.size() == clip->frames.size());
  CHECK(again->frames.back().bytes == clip->frames.back().bytes);
  return 0;
}
