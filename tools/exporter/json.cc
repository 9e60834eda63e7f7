#include "tools/exporter/json.h"

#include <algorithm>
#include <string_view>

#include "emu/base/json_line.h"

namespace tools {
namespace {

void write_series(emu::JsonWriter& json, const emu::SeriesValue& series) {
  json.open().field("name", series.name).field("kind", emu::name_of(series.kind)).open("labels");
  for (const auto& [key, value] : series.labels) json.field(key, value);
  json.close();
  if (series.kind == emu::MetricKind::histogram) {
    const emu::HistogramSummary s = emu::summarize_histogram(series.words);
    json.field("count", s.count)
        .field("sum", static_cast<double>(series.words[1]) * series.scale)
        .field("mean", s.mean * series.scale)
        .field("p50", s.p50 * series.scale)
        .field("p99", s.p99 * series.scale)
        .field("max", s.max * series.scale);
  } else {
    json.field("value", series.value);
  }
  json.close();
}

}  // namespace

std::string pages_json(const std::vector<emu::PageContent>& pages) {
  emu::JsonWriter json;
  json.open().open_array("pages");
  for (const emu::PageContent& page : pages) {
    json.open()
        .field("process", page.process)
        .field("pid", page.pid)
        .field("alive", page.alive)
        .field("finished", page.finished)
        .field("skipped", page.skipped)
        .open_array("series");
    for (const emu::SeriesValue& series : page.series) write_series(json, series);
    json.close_array().close();
  }
  json.close_array().close();
  return json.text() + "\n";
}

std::string catalog_json() {
  emu::JsonWriter json;
  json.open_array();
  for (const emu::MetricInfo& info : emu::metric_catalog()) {
    json.open()
        .field("id", info.id)
        .field("name", info.name)
        .field("kind", emu::name_of(info.kind))
        .field("scale", info.scale)
        .open_array("labels");
    std::string_view rest = info.labels;
    while (!rest.empty()) {
      const std::size_t end = std::min(rest.find(','), rest.size());
      json.field({}, rest.substr(0, end));
      rest.remove_prefix(std::min(end + 1, rest.size()));
    }
    json.close_array().field("help", info.help).close();
  }
  json.close_array();
  return json.text() + "\n";
}

}  // namespace tools
