// What the start codes of one coded frame say (ISO 13818-2, 6.2). In come the bytes of a frame, out
// goes what a trace needs to know and a check can be made of. No state, no I/O.
#pragma once

#include <cstdint>
#include <span>

#include "tools/trace/frame.h"

namespace tools {

struct FrameFacts {
  std::uint32_t pictures = 0;      // 2 for a pair of field pictures
  std::uint32_t picture_code = 0;  // picture_coding_type of the first: 1 I, 2 P, 3 B
  std::uint32_t slice_rows = 0;    // different slice_vertical_position values, most of any picture
  bool field_pictures = false;
  bool sequence_header = false;
  bool sequence_extension = false;  // absent in MPEG-1
  std::uint32_t width = 0;          // both 0 without a sequence header
  std::uint32_t height = 0;
};

FrameFacts scan_frame(std::span<const std::uint8_t> bytes);

}  // namespace tools
