#include "tools/replay/plan.h"

#include <algorithm>
#include <optional>
#include <set>

#include "tools/replay/words.h"

namespace tools {
namespace {

// "25" or "10000/333": a frame's header has 16 bits for each of the two numbers.
emu::Result<FrameRate> read_rate(std::string_view text, const std::string& where) {
  constexpr std::uint64_t kPartMax = 0xffff;
  constexpr std::uint64_t kFpsMax = 1000;
  const std::size_t slash = std::min(text.find('/'), text.size());
  const auto frames = parse_number(text.substr(0, slash), kPartMax);
  const auto seconds = slash == text.size() ? std::optional<std::uint64_t>(1)
                                            : parse_number(text.substr(slash + 1), kPartMax);
  if (!frames || !seconds || *seconds == 0 || *frames < *seconds || *frames > kFpsMax * *seconds) {
    return emu::fail("{}: fps must be 1 to {}, or a fraction of numbers to {}, as 30000/1001",
                     where, kFpsMax, kPartMax);
  }
  return FrameRate{static_cast<std::uint32_t>(*frames), static_cast<std::uint32_t>(*seconds)};
}

// Names stand in file names, labels and lines of text.
bool plain_name(std::string_view name) {
  constexpr std::size_t kNameMax = 48;
  return !name.empty() && name.size() <= kNameMax && std::ranges::all_of(name, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_' || c == '.';
  });
}

emu::Result<void> read_numbers(const Words& words, const std::string& where, StreamPlan& stream) {
  const auto take = [&](std::string_view key, std::uint64_t max,
                        std::uint32_t& to) -> emu::Result<void> {
    if (!words.has(key)) return {};
    const auto value = words.number(key, max);
    if (!value) return emu::fail("{}: {} is not a number from 0 to {}", where, key, max);
    to = static_cast<std::uint32_t>(*value);
    return {};
  };
  if (auto read = take("frame", 1'000'000, stream.frame); !read) return read;
  if (auto read = take("phase_us", 10'000'000, stream.phase_us); !read) return read;
  if (!words.has("fps")) return {};
  const auto rate = read_rate(words.text("fps"), where);
  if (!rate) return std::unexpected(rate.error());
  stream.rate = *rate;
  return {};
}

}  // namespace

emu::Result<StreamPlan> parse_stream(std::string_view line, const std::string& where) {
  const Words words = Words::parse(line, ",");
  for (const auto& [key, value] : words.pairs()) {
    constexpr std::string_view kKeys[] = {"name", "clip", "from", "to", "frame", "phase_us", "fps"};
    if (std::ranges::find(kKeys, key) == std::end(kKeys)) {
      return emu::fail("{}: unknown key '{}'; know name, clip, from, to, frame, phase_us, fps",
                       where, key);
    }
  }
  StreamPlan stream{.name = words.text("name"),
                    .clip = words.text("clip"),
                    .from = words.text("from"),
                    .to = words.text("to"),
                    .rate = {}};
  if (!words.verb().empty()) return emu::fail("{}: '{}' is no key=value", where, words.verb());
  if (!plain_name(stream.name)) return emu::fail("{}: a stream needs name=, plain letters", where);
  if (stream.clip.empty()) return emu::fail("{}: stream {} needs clip=", where, stream.name);
  if (!plain_name(stream.from) || !plain_name(stream.to)) {
    return emu::fail("{}: stream {} needs from= and to=, names of nodes", where, stream.name);
  }
  if (stream.from == stream.to) {
    return emu::fail("{}: stream {} goes from {} to itself", where, stream.name, stream.from);
  }
  if (auto read = read_numbers(words, where, stream); !read) return std::unexpected(read.error());
  return stream;
}

emu::Result<std::vector<StreamPlan>> parse_plan(std::string_view text, const std::string& where) {
  std::vector<StreamPlan> streams;
  for (std::size_t number = 1; !text.empty(); ++number) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    line = line.substr(0, line.find('#'));
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    auto stream = parse_stream(line, where + ":" + std::to_string(number));
    if (!stream) return std::unexpected(stream.error());
    if (streams.size() >= kStreamsMax) {
      return emu::fail("{}: more than {} streams", where, kStreamsMax);
    }
    streams.push_back(*std::move(stream));
  }
  if (streams.empty()) return emu::fail("{}: no streams in it", where);
  if (auto checked = check_names(streams); !checked) return std::unexpected(checked.error());
  return streams;
}

emu::Result<void> check_names(const std::vector<StreamPlan>& streams) {
  std::set<std::string> names;
  for (const StreamPlan& stream : streams) {
    if (!names.insert(stream.name).second)
      return emu::fail("two streams are named {}", stream.name);
  }
  return {};
}

}  // namespace tools
