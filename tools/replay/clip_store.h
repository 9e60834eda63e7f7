// Clips held in registered, sealed, shared memory: read once, registered once, however many streams
// send them. Also the papers' synthetic streams. Called by the replayer at its start.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "emu/base/result.h"
#include "tools/replay/device.h"
#include "tools/trace/any.h"

namespace tools {

struct StoredClip {
  Clip clip;  // its own `stream` is empty: the bytes are in `region`
  Region region;
  std::vector<std::uint32_t> crcs;  // of each frame
  std::uint32_t frame_bytes_max = 0;

  std::span<const std::uint8_t> frame(std::size_t index) const {
    return region.bytes().subspan(clip.frames[index].offset, clip.frames[index].bytes);
  }
};

// MW section 4.3: a CBR stream has frames of 16 666 bytes; VBR frames are N(16 666, 3 333) bytes.
// Both are 4 Mb/s at 30 frames/s. `spec` is "cbr" or "vbr:SEED", and with ":BYTES" behind it frames
// have another mean, their deviation is a fifth of it all the same.
bool is_synthetic(std::string_view spec);
emu::Result<Clip> synthetic_clip(const std::string& spec);

class ClipStore {
 public:
  explicit ClipStore(const Device& device) : device_(device) {}
  // The clip in the file, or a synthetic one; the same object for the same name.
  emu::Result<const StoredClip*> get(const std::string& path, const TextOptions& text);

 private:
  const Device& device_;
  std::map<std::string, std::unique_ptr<StoredClip>> clips_;
};

}  // namespace tools
