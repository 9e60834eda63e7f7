// One door for whatever a user names as a clip: MPEG-2 in a container, or a frame-size trace in
// text. Called by flitnet-trace and flitnet-replay.
#pragma once

#include <string>
#include <string_view>

#include "emu/base/result.h"
#include "tools/trace/clip.h"
#include "tools/trace/text.h"

namespace tools {

// Text if the name ends in .trace, .dat, .txt or .csv or if `text` says a layout or unit, else a
// clip. A text trace comes back without bytes: fill_stream makes some.
emu::Result<Clip> read_any(const std::string& path, const TextOptions& text = {});

// "" means not given. The words are those of --layout and --unit.
TextOptions text_options(std::string_view layout, std::string_view unit);

}  // namespace tools
