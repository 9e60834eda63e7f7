// A coded video frame as the replayer and the traces see it. No state, no I/O.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tools {

// Picture coding types of MPEG-2. `unknown` is for text traces that carry sizes only.
enum class FrameType : char { intra = 'I', predicted = 'P', bidirectional = 'B', unknown = '-' };

struct Frame {
  std::uint32_t index = 0;  // in coded order
  FrameType type = FrameType::unknown;
  std::uint32_t bytes = 0;
  std::uint64_t offset = 0;  // of its bytes in Clip::stream; frames follow one another without gaps
};

// A clip held in memory: looping by seek would lose the first picture (measured with libavformat).
struct Clip {
  std::string name;    // file name without folder
  std::string origin;  // "mpeg", "mpegts", "mpegvideo" or "text"
  std::uint32_t width = 0;
  std::uint32_t height = 0;
  std::vector<Frame> frames;
  std::vector<std::uint8_t> stream;  // elementary stream; made-up bytes for a text trace
};

}  // namespace tools
