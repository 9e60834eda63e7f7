// Clips from memory, libavformat and all: frames that make sense or one line, in bounded memory.
#include <cstdint>
#include <span>

#include "emu/base/check.h"
#include "tools/trace/clip.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto clip = tools::parse_clip(std::span(data, size), "fuzz");
  if (!clip) {
    CHECK(clip.error().message.find('\n') == std::string::npos);
    return 0;
  }
  std::uint64_t offset = 0;
  for (const tools::Frame& frame : clip->frames) {
    CHECK(frame.offset == offset && frame.bytes > 0);
    offset += frame.bytes;
  }
  CHECK(offset == clip->stream.size() && offset <= size);
  return 0;
}
