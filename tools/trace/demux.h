// The only door to libavformat: a file in memory -> the coded frames of its MPEG-2 video stream,
// one call each. Called by clip.cc. Reading from memory means that no text in the file (ffconcat,
// HLS, SDP) can make the library open another file or the network: there is no protocol to do it
// with.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "emu/base/result.h"
#include "tools/trace/clip.h"

namespace tools {

// Takes the bytes of one frame (valid during the call); an error ends the reading.
using FrameSink = std::function<emu::Result<void>(std::span<const std::uint8_t>)>;

// Returns the container's name: "mpeg", "mpegts" or "mpegvideo".
emu::Result<std::string> demux(std::span<const std::uint8_t> file, const std::string& name,
                               const ClipLimits& limits, const FrameSink& sink);

}  // namespace tools
