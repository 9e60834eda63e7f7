// What a replayer says at its end and while it runs: JSON and metrics. In come its streams.
#pragma once

#include <string>

#include "tools/replay/replayer.h"

namespace tools {

// {"node":…, "streams":[…], "lost":…, "duplicated":…}. A stream stands in the file of its sender
// and in that of its sink ("role"); the sink's record is complete, the sender's lacks what arrival
// tells.
std::string report_json(const Replayer& replayer);
// A few lines for people.
std::string report_text(const Replayer& replayer);

}  // namespace tools
