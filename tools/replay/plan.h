// Which streams there are: one line each, "name=s0,clip=FILE,from=n0,to=n3,frame=12,phase_us=700".
// One plan serves all processes of a cluster; each sends the streams from its node and sinks those
// to it. More keys: fps=25, or as a fraction, fps=30000/1001.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "emu/base/result.h"
#include "tools/replay/deadline.h"

namespace tools {

inline constexpr std::size_t kStreamsMax = 1024;  // of a plan

struct StreamPlan {
  std::string name;
  std::string clip;  // file, or the papers' synthetic streams: "cbr[:BYTES]", "vbr:SEED[:BYTES]"
  std::string from;
  std::string to;
  std::uint32_t frame = 0;     // first frame of the clip: the stream's own GOP phase
  std::uint32_t phase_us = 0;  // of its launches inside a frame time
  FrameRate rate;
};

// `where` names the line in errors.
emu::Result<StreamPlan> parse_stream(std::string_view line, const std::string& where);
// Lines of a plan file; '#' begins a comment. Names must differ.
emu::Result<std::vector<StreamPlan>> parse_plan(std::string_view text, const std::string& where);
emu::Result<void> check_names(const std::vector<StreamPlan>& streams);

}  // namespace tools
