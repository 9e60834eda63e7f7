#include "tools/trace/any.h"

#include <algorithm>
#include <array>

namespace tools {

emu::Result<Clip> read_any(const std::string& path, const TextOptions& text) {
  constexpr std::array<std::string_view, 4> kTextSuffixes = {".trace", ".dat", ".txt", ".csv"};
  const bool is_text = text.layout || text.unit ||
                       std::ranges::any_of(kTextSuffixes, [&path](std::string_view suffix) {
                         return path.ends_with(suffix);
                       });
  return is_text ? read_trace(path, text) : read_clip(path);
}

TextOptions text_options(std::string_view layout, std::string_view unit) {
  TextOptions options;
  for (const TraceLayout known :
       {TraceLayout::own, TraceLayout::asu_verbose, TraceLayout::tkn, TraceLayout::terse}) {
    if (layout == layout_name(known)) options.layout = known;
  }
  if (unit == "bits") options.unit = SizeUnit::bits;
  if (unit == "bytes") options.unit = SizeUnit::bytes;
  return options;
}

}  // namespace tools
