#include "emu/metrics/catalog.h"

#include <algorithm>
#include <array>

#include "emu/base/check.h"

namespace emu {
namespace {

constexpr auto counter = MetricKind::counter;
constexpr auto gauge = MetricKind::gauge;
constexpr auto histogram = MetricKind::histogram;

constexpr MetricInfo kCatalog[] = {
#define METRIC(id, name, kind, scale, labels, help) {#id, name, kind, scale, labels, help},
#include "emu/metrics/catalog.inc"
#undef METRIC
};

constexpr std::array<std::string_view, kMetricKindCount> kKindNames = {"counter", "gauge",
                                                                       "histogram"};

}  // namespace

std::span<const MetricInfo> metric_catalog() { return kCatalog; }

const MetricInfo& metric_info(Metric metric) {
  const auto index = static_cast<std::size_t>(metric);
  CHECK(index < std::size(kCatalog));
  return kCatalog[index];
}

std::optional<Metric> metric_by_name(std::string_view name) {
  const auto found = std::ranges::find(kCatalog, name, &MetricInfo::name);
  if (found == std::end(kCatalog)) return std::nullopt;
  return static_cast<Metric>(found - std::begin(kCatalog));
}

std::string_view name_of(MetricKind kind) { return kKindNames[static_cast<std::size_t>(kind)]; }

}  // namespace emu
