// From a capture ring to a pcap file. In: packets with emulated times. Out: the file, link type
// ERF, in nanoseconds; how many packets it has. Stops at a limit, when `stop` is set, when the
// fabric ends, or when nobody reads the file any more (a pipe).
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "emu/base/result.h"
#include "emu/wire/capture.h"

namespace tools {

struct DrainOptions {
  std::string write;        // a file, or "-" for stdout
  std::uint64_t count = 0;  // packets; 0: no limit
  double seconds = 0;       // emulated, from the first packet on; 0: no limit
};

emu::Result<std::uint64_t> drain(emu::CaptureReader& ring, const DrainOptions& options,
                                 const std::atomic<bool>& stop);

}  // namespace tools
