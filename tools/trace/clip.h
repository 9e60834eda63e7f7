// MPEG-2 program, transport and elementary streams -> frames. In comes a file that nobody vouches
// for, out go frames in coded order and their bytes, or one line that says what is wrong with the
// file. libavformat is used here and nowhere else. Called by flitnet-trace, flitnet-replay and the
// fuzzer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "emu/base/result.h"
#include "tools/trace/frame.h"

namespace tools {

// Every limit has a reason: a clip must not hang, exhaust or fool whoever opens it.
struct ClipLimits {
  std::uint64_t file_bytes_max = std::uint64_t{1} << 30;  // clips are held in memory
  std::uint32_t frame_bytes_max = 4U << 20;               // MP@HL's VBV is 1.2 MB
  std::uint32_t frames_max = 1'000'000;                   // nine hours at 30 frames/s
  std::uint32_t frames_min = 1;
  std::uint32_t picture_side_max = 2048;  // High level ends at 1920x1152
  std::int64_t probe_bytes = 1 << 20;
  std::int64_t probe_us = 10'000'000;  // stream time looked at, not wall time
};

// The clip in the file at `path`: a regular file (stat first: a FIFO would block, a directory
// confuse), of one of three containers, with an MPEG-2 video stream.
emu::Result<Clip> read_clip(const std::string& path, const ClipLimits& limits = {});

// The same from memory; `name` is used in messages. For tests and the fuzzer.
emu::Result<Clip> parse_clip(std::span<const std::uint8_t> file, const std::string& name,
                             const ClipLimits& limits = {});

// The bytes of a regular file of 1 to `bytes_max` bytes; anything else is an error, without
// blocking.
emu::Result<std::vector<std::uint8_t>> read_file(const std::string& path, std::uint64_t bytes_max);

}  // namespace tools
