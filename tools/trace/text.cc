#include "tools/trace/text.h"

#include <array>
#include <charconv>
#include <filesystem>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "emu/base/prng.h"
#include "tools/trace/clip.h"

namespace tools {
namespace {

constexpr std::string_view kOwnHeader = "# flitnet trace 1";
constexpr std::size_t kLineBytesMax = 1000;
constexpr std::size_t kColumnsMax = 16;

struct Columns {
  std::array<std::string_view, kColumnsMax> text;
  std::size_t count = 0;
};

Columns split(std::string_view line) {
  Columns columns;
  constexpr std::string_view kBlank = " \t\r,;";
  while (columns.count < kColumnsMax) {
    const std::size_t from = line.find_first_not_of(kBlank);
    if (from == std::string_view::npos) break;
    line.remove_prefix(from);
    const std::size_t to = std::min(line.find_first_of(kBlank), line.size());
    columns.text[columns.count++] = line.substr(0, to);
    line.remove_prefix(to);
  }
  return columns;
}

std::optional<FrameType> type_of(std::string_view text) {
  if (text.size() != 1) return std::nullopt;
  switch (text[0]) {
    case 'I':
    case 'i':
      return FrameType::intra;
    case 'P':
    case 'p':
      return FrameType::predicted;
    case 'B':
    case 'b':
      return FrameType::bidirectional;
    case '-':
      return FrameType::unknown;
    default:
      return std::nullopt;
  }
}

std::optional<std::uint64_t> number_of(std::string_view text) {
  std::uint64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc{} || stop != end) return std::nullopt;
  return value;
}

std::optional<TraceLayout> recognise(const Columns& line, bool own_header) {
  if (own_header) return TraceLayout::own;
  if (line.count == 1) return TraceLayout::terse;
  if (line.count >= 4 && type_of(line.text[1])) return TraceLayout::tkn;
  if (line.count >= 4 && type_of(line.text[2])) return TraceLayout::asu_verbose;
  return std::nullopt;
}

// Where a layout keeps type and size; 0 for the type means none.
struct Shape {
  std::size_t columns_min;
  std::size_t type;
  std::size_t size;
  std::optional<SizeUnit> unit;
};
Shape shape_of(TraceLayout layout) {
  switch (layout) {
    case TraceLayout::own:
      return {3, 1, 2, SizeUnit::bytes};
    case TraceLayout::asu_verbose:
      return {4, 2, 3, SizeUnit::bits};
    case TraceLayout::tkn:
      return {4, 1, 3, SizeUnit::bytes};
    case TraceLayout::terse:
      return {1, 0, 0, std::nullopt};
  }
  return {1, 0, 0, std::nullopt};
}

class TraceParser {
 public:
  TraceParser(const std::string& name, const TextOptions& options)
      : name_(name), options_(options) {
    clip_.name = name;
    clip_.origin = "text";
  }

  emu::Result<void> line(std::string_view text, std::size_t number) {
    if (text.size() > kLineBytesMax) {
      return emu::fail("{}:{}: line of {} bytes, not a frame-size trace", name_, number,
                       text.size());
    }
    if (number == 1 && text.starts_with(kOwnHeader)) own_header_ = true;
    if (text.starts_with('#') || text.starts_with('%')) return {};
    const Columns columns = split(text);
    if (columns.count == 0) return {};
    if (!shape_) {
      if (auto chosen = choose(columns, number); !chosen) return chosen;
    }
    return frame(columns, number);
  }

  emu::Result<Clip> finish() {
    if (clip_.frames.empty()) return emu::fail("{}: no frames in it", name_);
    return std::move(clip_);
  }

 private:
  emu::Result<void> choose(const Columns& columns, std::size_t number) {
    const auto layout = options_.layout ? options_.layout : recognise(columns, own_header_);
    if (!layout) {
      return emu::fail("{}:{}: {} columns fit no trace layout; say --layout own|asu|tkn|terse",
                       name_, number, columns.count);
    }
    shape_ = shape_of(*layout);
    const auto unit = options_.unit ? options_.unit : shape_->unit;
    if (!unit) {
      return emu::fail(
          "{}:{}: one size a line may be bits or bytes; say --unit bits or --unit bytes", name_,
          number);
    }
    unit_ = *unit;
    return {};
  }

  emu::Result<void> frame(const Columns& columns, std::size_t number) {
    if (columns.count < shape_->columns_min) {
      return emu::fail("{}:{}: {} columns, need {}", name_, number, columns.count,
                       shape_->columns_min);
    }
    FrameType type = FrameType::unknown;
    if (shape_->type != 0) {
      const auto found = type_of(columns.text[shape_->type]);
      if (!found) return emu::fail("{}:{}: frame type is not I, P or B", name_, number);
      type = *found;
    }
    const auto size = number_of(columns.text[shape_->size]);
    if (!size) return emu::fail("{}:{}: frame size is not a number", name_, number);
    // Divided before it is rounded up: no size can overflow here.
    const std::uint64_t bytes =
        unit_ == SizeUnit::bytes ? *size : *size / 8 + (*size % 8 != 0 ? 1 : 0);
    if (bytes > kTraceFrameBytesMax) {
      return emu::fail("{}:{}: frame of {} bytes, the limit is {}", name_, number, bytes,
                       kTraceFrameBytesMax);
    }
    if (clip_.frames.size() >= kTraceFramesMax) {
      return emu::fail("{}:{}: more than {} frames", name_, number, kTraceFramesMax);
    }
    clip_.frames.push_back({.index = static_cast<std::uint32_t>(clip_.frames.size()),
                            .type = type,
                            .bytes = static_cast<std::uint32_t>(bytes),
                            .offset = offset_});
    offset_ += bytes;
    return {};
  }

  const std::string& name_;
  TextOptions options_;
  bool own_header_ = false;
  std::optional<Shape> shape_;
  SizeUnit unit_ = SizeUnit::bytes;
  std::uint64_t offset_ = 0;
  Clip clip_;
};

struct TypeSums {
  std::uint64_t frames = 0;
  std::uint64_t bytes = 0;
  double mean_kbit() const {
    return frames == 0 ? 0 : static_cast<double>(bytes) * 8e-3 / static_cast<double>(frames);
  }
};
TypeSums sums_of(const Clip& clip, std::optional<FrameType> type) {
  TypeSums sums;
  for (const Frame& frame : clip.frames) {
    if (type && frame.type != *type) continue;
    ++sums.frames;
    sums.bytes += frame.bytes;
  }
  return sums;
}

// A file name inside JSON or a header line: anything unusual becomes '?'.
std::string plain(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const bool printable = c >= ' ' && c <= '~' && c != '"' && c != '\\';
    out += printable ? c : '?';
  }
  return out;
}

}  // namespace

emu::Result<Clip> parse_trace(std::string_view text, const std::string& name,
                              const TextOptions& options) {
  if (text.size() > kTraceTextBytesMax) {
    return emu::fail("{}: {} bytes of text, the limit is {}", name, text.size(),
                     kTraceTextBytesMax);
  }
  TraceParser parser(name, options);
  std::size_t number = 0;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    if (auto parsed = parser.line(text.substr(0, end), ++number); !parsed) {
      return std::unexpected(parsed.error());
    }
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return parser.finish();
}

emu::Result<Clip> read_trace(const std::string& path, const TextOptions& options) {
  auto bytes = read_file(path, kTraceTextBytesMax);
  if (!bytes) return std::unexpected(bytes.error());
  const std::string_view text(reinterpret_cast<const char*>(bytes->data()), bytes->size());
  return parse_trace(text, std::filesystem::path(path).filename().string(), options);
}

std::string write_trace(const Clip& clip) {
  const TypeSums all = sums_of(clip, std::nullopt);
  const TypeSums i = sums_of(clip, FrameType::intra);
  const TypeSums p = sums_of(clip, FrameType::predicted);
  const TypeSums b = sums_of(clip, FrameType::bidirectional);
  std::string out = fmt::format("{}\n", kOwnHeader);
  out += fmt::format("# clip {} {}x{}, {} frames in coded order (I {}, P {}, B {})\n",
                     plain(clip.name), clip.width, clip.height, all.frames, i.frames, p.frames,
                     b.frames);
  out += fmt::format("# {:.1f} kb/s at 30 frames/s; mean I {:.1f}, P {:.1f}, B {:.1f} kbit\n",
                     all.mean_kbit() * 30, i.mean_kbit(), p.mean_kbit(), b.mean_kbit());
  out += "# frame type bytes\n";
  for (const Frame& frame : clip.frames) {
    out += fmt::format("{} {} {}\n", frame.index, static_cast<char>(frame.type), frame.bytes);
  }
  return out;
}

std::string write_trace_json(const Clip& clip) {
  const TypeSums all = sums_of(clip, std::nullopt);
  std::string out = fmt::format(
      "{{\"name\":\"{}\",\"origin\":\"{}\",\"width\":{},\"height\":{},\"bytes\":{},"
      "\"mean_kbit\":{{\"all\":{:.3f},\"I\":{:.3f},\"P\":{:.3f},\"B\":{:.3f}}},\"frames\":[",
      plain(clip.name), plain(clip.origin), clip.width, clip.height, all.bytes, all.mean_kbit(),
      sums_of(clip, FrameType::intra).mean_kbit(), sums_of(clip, FrameType::predicted).mean_kbit(),
      sums_of(clip, FrameType::bidirectional).mean_kbit());
  for (const Frame& frame : clip.frames) {
    out += fmt::format("{}{{\"index\":{},\"type\":\"{}\",\"bytes\":{},\"offset\":{}}}",
                       frame.index == 0 ? "" : ",", frame.index, static_cast<char>(frame.type),
                       frame.bytes, frame.offset);
  }
  out += "]}\n";
  return out;
}

emu::Result<void> fill_stream(Clip& clip, std::uint64_t bytes_max) {
  const std::uint64_t bytes =
      clip.frames.empty() ? 0 : clip.frames.back().offset + clip.frames.back().bytes;
  if (bytes > bytes_max) {
    return emu::fail("{}: frames of {} bytes in all, the limit is {}", clip.name, bytes, bytes_max);
  }
  clip.stream.resize(bytes);
  for (const Frame& frame : clip.frames) {
    emu::Prng prng(frame.index);
    for (std::uint32_t k = 0; k < frame.bytes; ++k) {
      clip.stream[frame.offset + k] = static_cast<std::uint8_t>(prng() >> 56);
    }
  }
  return {};
}

std::string_view layout_name(TraceLayout layout) {
  switch (layout) {
    case TraceLayout::own:
      return "own";
    case TraceLayout::asu_verbose:
      return "asu";
    case TraceLayout::tkn:
      return "tkn";
    case TraceLayout::terse:
      return "terse";
  }
  return "?";
}

}  // namespace tools
