// Layout of a counter page file, the contract of its writer and its readers (C++ and Python alike):
// a header, `series_max` series entries, `words_max` values. Little endian.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "emu/metrics/catalog.h"

namespace emu {

inline constexpr std::uint64_t kPageMagic = 0x3145474150544c46;  // "FLTPAGE1"
inline constexpr std::uint32_t kPageVersion = 1;
// Readers refuse more. The file has holes where nothing was written, and readers skip them: room
// for the ports of 4096 routers costs nothing.
inline constexpr std::size_t kPageFileBytesMax = std::size_t{1} << 30;

struct PageHeader {
  std::uint64_t magic;
  std::uint32_t version;
  std::uint32_t pid;
  std::uint32_t series_max;
  std::uint32_t words_max;
  std::uint32_t series_count;  // entries below it are complete: stored with release, last
  std::uint32_t series_bytes;  // sizeof(PageSeries)
  std::uint64_t start_unix_ns;
  char process[56];        // zero terminated
  std::uint32_t finished;  // 1: its process ended well, these are its last words
  std::uint8_t reserved[28];
};
static_assert(sizeof(PageHeader) == 128 && std::has_unique_object_representations_v<PageHeader>);
static_assert(offsetof(PageHeader, series_count) == 24 && offsetof(PageHeader, process) == 40);

struct PageSeries {
  char name[80];         // of the metric, zero terminated
  char labels[216];      // key=value,key=value; zero terminated; no escapes
  double scale;          // exported = stored * scale
  std::uint32_t offset;  // of its first word
  std::uint32_t words;   // 1; histogram: kHistogramWords
  std::uint16_t metric;  // enum Metric of the writer's build
  std::uint8_t kind;     // MetricKind
  std::uint8_t reserved[5];
};
static_assert(sizeof(PageSeries) == 320 && offsetof(PageSeries, scale) == 296 &&
              offsetof(PageSeries, offset) == 304 && offsetof(PageSeries, kind) == 314);

}  // namespace emu
