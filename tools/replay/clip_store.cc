#include "tools/replay/clip_store.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numbers>
#include <optional>
#include <string_view>

#include "emu/base/prng.h"
#include "tools/replay/frame_header.h"

namespace tools {
namespace {

constexpr std::uint32_t kSyntheticFrames = 300;  // ten seconds, then the same again
constexpr std::uint32_t kSyntheticMean = 16'666;
constexpr std::uint32_t kSyntheticMeanMax = 16'000'000;
constexpr double kSyntheticSd = 3'333.0 / kSyntheticMean;
constexpr double kSyntheticMin = 612.0 / kSyntheticMean;  // nearly five deviations below the mean

double normal(emu::Prng& prng, double mean, double sd) {
  const double radius = std::sqrt(prng.exponential(2.0));  // Box and Muller
  return mean + sd * radius * std::cos(2 * std::numbers::pi * prng.uniform());
}

// The numbers behind the kind, ":1:16666"; none: something else stands there.
std::optional<std::vector<std::uint64_t>> numbers_of(std::string_view text) {
  std::vector<std::uint64_t> found;
  while (!text.empty()) {
    std::uint64_t value = 0;
    const char* end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data() + 1, end, value);
    if (text.front() != ':' || error != std::errc{}) return std::nullopt;
    found.push_back(value);
    text = {stop, end};
  }
  return found;
}

}  // namespace

bool is_synthetic(std::string_view spec) {
  const std::string_view kind = spec.substr(0, spec.find(':'));
  return kind == "cbr" || kind == "vbr";
}

emu::Result<Clip> synthetic_clip(const std::string& spec) {
  const bool vbr = spec.starts_with("vbr");
  auto numbers = numbers_of(std::string_view(spec).substr(std::min<std::size_t>(3, spec.size())));
  std::uint64_t seed = 1;
  std::uint64_t bytes = kSyntheticMean;
  if (numbers && vbr && !numbers->empty()) {
    seed = numbers->front();
    numbers->erase(numbers->begin());
  }
  if (numbers && numbers->size() == 1) bytes = numbers->front();
  if (!is_synthetic(spec) || !numbers || numbers->size() > 1 || bytes < 1 ||
      bytes > kSyntheticMeanMax) {
    return emu::fail(
        "{}: synthetic clips are cbr[:BYTES] and vbr[:SEED[:BYTES]], frames of at "
        "most {} bytes",
        spec, kSyntheticMeanMax);
  }
  const auto mean = static_cast<double>(bytes);
  Clip clip{.name = spec, .origin = "synthetic", .frames = {}, .stream = {}};
  emu::Prng prng(seed);
  std::uint64_t offset = 0;
  for (std::uint32_t index = 0; index < kSyntheticFrames; ++index) {
    const double size =
        vbr ? std::max(kSyntheticMin * mean, normal(prng, mean, kSyntheticSd * mean)) : mean;
    const auto frame_bytes = static_cast<std::uint32_t>(std::max(1L, std::lround(size)));
    clip.frames.push_back({.index = index, .bytes = frame_bytes, .offset = offset});
    offset += frame_bytes;
  }
  return clip;
}

emu::Result<const StoredClip*> ClipStore::get(const std::string& path, const TextOptions& text) {
  if (const auto found = clips_.find(path); found != clips_.end()) return found->second.get();
  auto clip = is_synthetic(path) ? synthetic_clip(path) : read_any(path, text);
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
