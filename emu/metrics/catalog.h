// What can be counted: one list (catalog.inc) makes the enum, the page layout, the exporter and the
// check of the dashboards.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace emu {

enum class MetricKind : std::uint8_t { counter = 0, gauge = 1, histogram = 2 };
inline constexpr int kMetricKindCount = 3;

enum class Metric : std::uint16_t {
#define METRIC(id, name, kind, scale, labels, help) id,
#include "emu/metrics/catalog.inc"
#undef METRIC
};

struct MetricInfo {
  std::string_view id;    // the enumerator
  std::string_view name;  // as exported
  MetricKind kind;
  double scale;             // exported = stored * scale
  std::string_view labels;  // keys, separated by commas
  std::string_view help;
};

std::span<const MetricInfo> metric_catalog();  // indexed by Metric
const MetricInfo& metric_info(Metric metric);
std::optional<Metric> metric_by_name(std::string_view name);
std::string_view name_of(MetricKind kind);

}  // namespace emu
