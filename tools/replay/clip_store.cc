#include "tools/replay/clip_store.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numbers>

#include "emu/base/prng.h"
#include "tools/replay/frame_header.h"

namespace tools {
namespace {

constexpr std::uint32_t kSyntheticFrames = 300;  // ten seconds, then the same again
constexpr double kSyntheticMean = 16'666;
constexpr double kSyntheticSd = 3'333;
constexpr double kSyntheticMin = 612;  // one packet; nearly five deviations below the mean

double normal(emu::Prng& prng, double mean, double sd) {
  const double radius = std::sqrt(prng.exponential(2.0));  // Box and Muller
  return mean + sd * radius * std::cos(2 * std::numbers::pi * prng.uniform());
}

}  // namespace

emu::Result<Clip> synthetic_clip(const std::string& spec) {
  std::uint64_t seed = 1;
  const bool vbr = spec.starts_with("vbr");
  if (!vbr && spec != "cbr") return emu::fail("{}: synthetic clips are cbr and vbr:SEED", spec);
  if (vbr && spec != "vbr") {
    const char* end = spec.data() + spec.size();
    const auto [stop, error] = std::from_chars(spec.data() + 4, end, seed);
    if (spec[3] != ':' || error != std::errc{} || stop != end) {
      return emu::fail("{}: synthetic clips are cbr and vbr:SEED", spec);
    }
  }
  Clip clip{.name = spec, .origin = "synthetic", .frames = {}, .stream = {}};
  emu::Prng prng(seed);
  std::uint64_t offset = 0;
  for (std::uint32_t index = 0; index < kSyntheticFrames; ++index) {
    const double size =
        vbr ? std::max(kSyntheticMin, normal(prng, kSyntheticMean, kSyntheticSd)) : kSyntheticMean;
    const auto bytes = static_cast<std::uint32_t>(std::lround(size));
    clip.frames.push_back({.index = index, .bytes = bytes, .offset = offset});
    offset += bytes;
  }
  return clip;
}

emu::Result<const StoredClip*> ClipStore::get(const std::string& path, const TextOptions& text) {
  if (const auto found = clips_.find(path); found != clips_.end()) return found->second.get();
  const bool synthetic = path == "cbr" || path == "vbr" || path.starts_with("vbr:");
  auto clip = synthetic ? synthetic_clip(path) : read_any(path, text);
  if (!clip) return std::unexpected(clip.error());
  if (clip->stream.empty()) {
    if (auto filled = fill_stream(*clip); !filled) return std::unexpected(filled.error());
  }
  auto stored = std::make_unique<StoredClip>();
  auto region = Region::create(device_, "flitnet-clip", clip->stream.size(), 0);
  if (!region) return std::unexpected(region.error());
  stored->region = *std::move(region);
  std::ranges::copy(clip->stream, stored->region.bytes().begin());
  stored->clip = *std::move(clip);
  stored->clip.stream = {};
  for (std::size_t i = 0; i < stored->clip.frames.size(); ++i) {
    stored->crcs.push_back(crc32c(stored->frame(i)));
    stored->frame_bytes_max = std::max(stored->frame_bytes_max, stored->clip.frames[i].bytes);
  }
  return clips_.emplace(path, std::move(stored)).first->second.get();
}

}  // namespace tools
