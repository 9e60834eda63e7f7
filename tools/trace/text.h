// Frame-size traces as text: our own *.trace, ASU verbose and terse, TKN (Berlin) and ns-3. In
// comes text nobody vouches for, out go frames or one line with the line number and what is wrong
// in it. Called by flitnet-trace, flitnet-replay, the cluster tests and the fuzzer. No I/O but
// read_trace.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "emu/base/result.h"
#include "tools/trace/frame.h"

namespace tools {

enum class TraceLayout : std::uint8_t {
  own,          // "index type bytes", first line "# flitnet trace 1"
  asu_verbose,  // "index time_s type BITS psnr…"
  tkn,          // "index type time_ms BYTES"; '#' lines are comments (TKN), none in ns-3
  terse,        // one size a line; the unit must be said
};
enum class SizeUnit : std::uint8_t { bits, bytes };

// Layouts are recognised by their columns; a terse trace is bits or bytes and nothing in it says
// which, so the unit has to be given for it. Anything given here is believed before what was found.
struct TextOptions {
  std::optional<TraceLayout> layout;
  std::optional<SizeUnit> unit;
};

inline constexpr std::uint64_t kTraceTextBytesMax = 64U << 20;
inline constexpr std::uint32_t kTraceFramesMax = 4'000'000;
inline constexpr std::uint32_t kTraceFrameBytesMax = 4U << 20;

// Frames in the order of the text, offsets filled as if their bytes followed one another. ASU
// verbose files are in display order; their frames stay in that order, which the caller should
// know.
emu::Result<Clip> parse_trace(std::string_view text, const std::string& name,
                              const TextOptions& options = {});
emu::Result<Clip> read_trace(const std::string& path, const TextOptions& options = {});

// Our own format: a header of '#' lines (clip, frames, types, mean rate), then "index type bytes".
std::string write_trace(const Clip& clip);
std::string write_trace_json(const Clip& clip);

// Fills `clip.stream` with bytes made from the frame number, for a clip that came from text; an
// error if they would need more than `bytes_max`.
emu::Result<void> fill_stream(Clip& clip, std::uint64_t bytes_max = std::uint64_t{1} << 30);

std::string_view layout_name(TraceLayout layout);

}  // namespace tools
