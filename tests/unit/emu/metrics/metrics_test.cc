// Counting and reading back: the catalogue's form, quantiles, pages that live, die or are garbage.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "emu/base/prng.h"
#include "emu/metrics/layout.h"
#include "emu/metrics/page.h"
#include "emu/metrics/read.h"

namespace {

using emu::Metric;
using emu::MetricKind;
using emu::MetricsPage;
using emu::Prng;
using emu::SeriesValue;

std::uint64_t fresh_seed() {
  const std::uint64_t seed = std::random_device{}();
  std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
  return seed;
}

class RunDir : public testing::Test {
 protected:
  RunDir() {
    char pattern[] = "/tmp/flitnet-test-XXXXXX";
    dir_ = mkdtemp(pattern);
  }
  ~RunDir() override { std::filesystem::remove_all(dir_); }
  std::string dir_;
};

const SeriesValue* find(const emu::PageContent& page, std::string_view name) {
  const auto found = std::ranges::find(page.series, name, &SeriesValue::name);
  return found == page.series.end() ? nullptr : &*found;
}

TEST(Catalog, NamesFollowPrometheus) {
  std::set<std::string_view> names;
  for (const emu::MetricInfo& info : emu::metric_catalog()) {
    EXPECT_TRUE(names.insert(info.name).second) << info.name;
    EXPECT_TRUE(info.name.starts_with("flitnet_")) << info.name;
    EXPECT_EQ(info.name.ends_with("_total"), info.kind == MetricKind::counter) << info.name;
    EXPECT_LT(info.name.size(), sizeof(emu::PageSeries::name));
    EXPECT_TRUE(info.help.ends_with(".")) << info.name;
    EXPECT_TRUE(info.kind != MetricKind::histogram || info.name.ends_with("_seconds"));
    for (const char c : info.name) EXPECT_TRUE(std::islower(c) || std::isdigit(c) || c == '_');
    EXPECT_EQ(emu::metric_info(*emu::metric_by_name(info.name)).id, info.id);
  }
  EXPECT_FALSE(emu::metric_by_name("flitnet_nothing"));
}

TEST(Histogram, BucketsTileTheValues) {
  EXPECT_EQ(emu::histogram_bucket_low(0), 0u);
  for (std::size_t i = 0; i + 1 < emu::kHistogramBuckets; ++i) {
    ASSERT_EQ(emu::histogram_bucket_high(i), emu::histogram_bucket_low(i + 1)) << i;
    ASSERT_EQ(emu::histogram_bucket(emu::histogram_bucket_low(i)), i);
    ASSERT_EQ(emu::histogram_bucket(emu::histogram_bucket_high(i) - 1), i);
  }
  EXPECT_EQ(emu::histogram_bucket(~std::uint64_t{0}), emu::kHistogramBuckets - 1);
}

// Quantiles and mean against the sorted values themselves.
TEST(Histogram, QuantilesAreRightToAFewPercent) {
  Prng random(fresh_seed());
  for (const double mean : {30.0, 5'000.0, 2e6, 1e9}) {
    emu::PlainHistogram histogram;
    std::vector<std::uint64_t> values(20'000);
    double sum = 0;
    for (auto& v : values) {
      v = static_cast<std::uint64_t>(random.exponential(mean));
      sum += static_cast<double>(v);
      histogram.add(v);
    }
    std::ranges::sort(values);
    const auto summary = histogram.summary();
    EXPECT_EQ(summary.count, values.size());
    EXPECT_NEAR(summary.mean, sum / 20'000, 1e-6 * mean);
    const auto p50 = static_cast<double>(values[9'999]);
    const auto p99 = static_cast<double>(values[19'799]);
    EXPECT_NEAR(summary.p50, p50, 0.04 * p50 + 1);
    EXPECT_NEAR(summary.p99, p99, 0.04 * p99 + 1);
    EXPECT_GE(summary.max, static_cast<double>(values.back()));
  }
  EXPECT_EQ(emu::PlainHistogram().summary().count, 0u);
}

TEST_F(RunDir, WhatIsCountedIsRead) {
  auto page = *MetricsPage::create(dir_, "hcad-n0");
  auto sent = page.counter(Metric::port_xmit_data, {"n0", "flitnet0", "1"});
  auto dilation = page.gauge(Metric::clock_dilation);
  auto latency = page.histogram(Metric::class_latency, {"n0", "flitnet0", "real_time"});
  sent.add(10);
  sent.add();
  dilation.set(1.25);
  for (std::uint64_t i = 0; i < 100; ++i) latency.add(1000);
  // The same series again is the same word.
  page.counter(Metric::port_xmit_data, {"n0", "flitnet0", "1"}).add();

  const auto pages = emu::read_pages(dir_);
  ASSERT_EQ(pages.size(), 1u);
  EXPECT_EQ(pages[0].process, "hcad-n0");
  EXPECT_EQ(pages[0].pid, static_cast<std::uint32_t>(getpid()));
  EXPECT_TRUE(pages[0].alive);
  EXPECT_EQ(pages[0].skipped, 0u);
  const SeriesValue* data = find(pages[0], "flitnet_device_port_data_transmitted_bytes_total");
  ASSERT_NE(data, nullptr);
  EXPECT_EQ(data->raw, 12u);
  EXPECT_EQ(data->value, 48);
  ASSERT_EQ(data->labels.size(), 3u);
  EXPECT_EQ(data->labels[1], (std::pair<std::string, std::string>("device", "flitnet0")));
  EXPECT_EQ(find(pages[0], "flitnet_clock_dilation_ratio")->value, 1.25);
  const auto summary =
      emu::summarize_histogram(find(pages[0], "flitnet_class_latency_seconds")->words);
  EXPECT_EQ(summary.count, 100u);
  EXPECT_NEAR(summary.p99, 1000, 40);
}

TEST_F(RunDir, LabelsCannotBreakTheSyntax) {
  auto page = *MetricsPage::create(dir_, "a");
  page.gauge(Metric::stream_dmp, {"x\",y=\n\\", "n0", std::string(500, 'z')}).set(0.5);
  const auto pages = emu::read_pages(dir_);
  const SeriesValue* series = find(pages[0], "flitnet_stream_deadline_missing_ratio");
  ASSERT_NE(series, nullptr);
  EXPECT_EQ(series->labels[0].second, "x__y___");
  EXPECT_EQ(series->labels[2].second.size(), 48u);
}

TEST_F(RunDir, AFullPageDropsSeriesAndSaysSo) {
  auto page = *MetricsPage::create(dir_, "small", {.series_max = 4, .words_max = 100});
  page.histogram(Metric::clock_lag).add(5);  // does not fit: words
  page.counter(Metric::power_windows).add();
  page.counter(Metric::power_windows_above).add(7);
  page.gauge(Metric::power_max).set(3);  // does not fit: series
  page.gauge(Metric::power_max).set(4);
  const auto pages = emu::read_pages(dir_);
  EXPECT_EQ(pages[0].series.size(), 4u);
  EXPECT_EQ(find(pages[0], "flitnet_process_series_dropped_total")->raw, 2u);
  EXPECT_EQ(find(pages[0], "flitnet_power_windows_above_cap_total")->raw, 7u);
}

// Of a fabric of 2500 routers: most of the file is a hole.
TEST_F(RunDir, PagesOfLargeFabricsAreMadeAndRead) {
  auto page = MetricsPage::create(dir_, "large", {.series_max = 577'088, .words_max = 600'000});
  ASSERT_TRUE(page) << page.error().message;
  page->gauge(Metric::power_max).set(3);
  const auto pages = emu::read_pages(dir_);
  ASSERT_EQ(pages.size(), 1u);
  EXPECT_NE(find(pages[0], "flitnet_power_max_watts"), nullptr);
  const auto none =
      MetricsPage::create(dir_, "larger", {.series_max = 4'000'000, .words_max = 100});
  ASSERT_FALSE(none);
  EXPECT_NE(none.error().message.find("must be at most"), std::string::npos)
      << none.error().message;
}

TEST_F(RunDir, APageEndsWithItsProcess) {
  { auto page = *MetricsPage::create(dir_, "a"); }
  EXPECT_TRUE(emu::read_pages(dir_).empty());
  {
    auto page = *MetricsPage::create(dir_, "replay");
    page.keep_file();
    page.counter(Metric::power_windows).add(3);
  }
  const auto pages = emu::read_pages(dir_);
  ASSERT_EQ(pages.size(), 1u);
  EXPECT_FALSE(pages[0].alive);
  EXPECT_TRUE(pages[0].finished);
  EXPECT_EQ(find(pages[0], "flitnet_power_windows_total")->raw, 3u);
}

TEST_F(RunDir, APageOfAKilledProcessIsReplacedALivingOneIsNot) {
  const pid_t child = fork();
  if (child == 0) {
    auto page = MetricsPage::create(dir_, "fabricd");
    if (page) kill(getpid(), SIGKILL);
    _exit(1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  const auto dead = emu::read_pages(dir_);
  ASSERT_EQ(dead.size(), 1u);
  EXPECT_FALSE(dead[0].alive);
  EXPECT_FALSE(dead[0].finished);
  auto page = MetricsPage::create(dir_, "fabricd");
  ASSERT_TRUE(page) << page.error().message;
  EXPECT_TRUE(emu::read_pages(dir_)[0].alive);
  EXPECT_FALSE(MetricsPage::create(dir_, "fabricd"));
  EXPECT_FALSE(MetricsPage::create(dir_, "../x"));
  EXPECT_FALSE(MetricsPage::create(dir_ + "/missing", "x"));
}

// Truncations and random damage: no crash, and whatever is read is well formed.
TEST(Read, DamagedPagesAreToleratedAtEveryByte) {
  Prng random(fresh_seed());
  auto page = MetricsPage::in_memory("p", {.series_max = 16, .words_max = 800});
  page.counter(Metric::switch_flits, {"0", "1", "2"}).add(9);
  page.histogram(Metric::clock_lag).add(5);
  page.gauge(Metric::power_cap).set(2);
  const std::vector<std::byte> good(page.bytes().begin(), page.bytes().end());
  ASSERT_EQ(emu::parse_page(good)->series.size(), 3u);
  for (std::size_t n = 0; n < good.size(); n += n < 600 ? 1 : 53) {
    const auto parsed = emu::parse_page(std::span(good).first(n));
    EXPECT_EQ(parsed.has_value(), n >= sizeof(emu::PageHeader));
  }
  for (int round = 0; round < 5000; ++round) {
    auto bytes = good;
    for (std::uint32_t edits = 1 + random.below(8); edits > 0; --edits) {
      bytes[random.below(16 * 320 + 128)] = static_cast<std::byte>(random());
    }
    const auto parsed = emu::parse_page(bytes);
    if (!parsed) continue;
    EXPECT_LE(parsed->series.size(), 16u);
    for (const SeriesValue& series : parsed->series) {
      EXPECT_EQ(series.words.size(),
                series.kind == MetricKind::histogram ? emu::kHistogramWords : 0);
      for (const auto& [key, value] : series.labels) {
        EXPECT_EQ(value.find('"'), std::string::npos);
      }
    }
  }
}

emu::PageSeries& entry_of(std::vector<std::byte>& page, std::size_t i) {
  return reinterpret_cast<emu::PageSeries*>(page.data() + sizeof(emu::PageHeader))[i];
}

// Thousands of entries that say they have the same histogram would be gigabytes in memory.
TEST(Read, SeriesThatShareWordsTakeNoMoreThanThePageHas) {
  auto page = MetricsPage::in_memory("p", {.series_max = 1000, .words_max = 2000});
  page.histogram(Metric::clock_lag).add(5);
  std::vector<std::byte> bytes(page.bytes().begin(), page.bytes().end());
  for (std::size_t i = 1; i < 1000; ++i) entry_of(bytes, i) = entry_of(bytes, 0);
  reinterpret_cast<emu::PageHeader*>(bytes.data())->series_count = 1000;
  const auto parsed = emu::parse_page(bytes);
  ASSERT_TRUE(parsed);
  EXPECT_EQ(parsed->series.size(), 2000 / emu::kHistogramWords);
  EXPECT_EQ(parsed->skipped, 1000 - 2000 / emu::kHistogramWords);
}

// One series with a label twice, or with one that is Prometheus's own, would cost all the others.
TEST(Read, LabelsThatPrometheusRefusesAreSkipped) {
  for (const char* labels : {"switch=0,switch=1", "le=1"}) {
    auto page = MetricsPage::in_memory("p", {.series_max = 4, .words_max = 8});
    page.gauge(Metric::power_cap).set(2);
    page.gauge(Metric::power_last).set(1);
    std::vector<std::byte> bytes(page.bytes().begin(), page.bytes().end());
    std::string_view(labels).copy(entry_of(bytes, 0).labels, 100);
    const auto parsed = emu::parse_page(bytes);
    ASSERT_TRUE(parsed);
    EXPECT_EQ(parsed->series.size(), 1u) << labels;
    EXPECT_EQ(parsed->skipped, 1u) << labels;
  }
}

TEST_F(RunDir, OtherFilesAreSkipped) {
  std::filesystem::create_directory(dir_ + "/metrics");
  std::ofstream(dir_ + "/metrics/junk.page") << std::string(5000, 'x');
  std::ofstream(dir_ + "/metrics/empty.page") << "";
  std::filesystem::create_directory(dir_ + "/metrics/dir.page");
  ASSERT_EQ(mkfifo((dir_ + "/metrics/fifo.page").c_str(), 0600), 0);
  std::ofstream(dir_ + "/metrics/huge.page") << "";
  std::filesystem::resize_file(dir_ + "/metrics/huge.page", std::uintmax_t{1} << 40);
  EXPECT_TRUE(emu::read_pages(dir_).empty());
  EXPECT_TRUE(emu::read_pages("/nonexistent").empty());
}

// A reader of a page that is being written sees counters that never go back.
TEST_F(RunDir, ReadersSeeCountersGrow) {
  auto page = *MetricsPage::create(dir_, "a");
  auto counter = page.counter(Metric::power_windows);
  std::atomic<bool> stop = false;
  std::thread writer([&] {
    while (!stop.load()) counter.add();
  });
  std::uint64_t last = 0;
  for (int i = 0; i < 50; ++i) {
    const auto pages = emu::read_pages(dir_);
    const std::uint64_t now = find(pages[0], "flitnet_power_windows_total")->raw;
    EXPECT_GE(now, last);
    last = now;
  }
  stop = true;
  writer.join();
}

// A full disk costs series, not the process, which SIGBUS would end at its first write.
TEST_F(RunDir, AFileSystemWithoutRoom) {
  if (::mount("tmpfs", dir_.c_str(), "tmpfs", 0, "size=512k") != 0)
    GTEST_SKIP() << "a file system of its own: " << std::strerror(errno);
  {
    auto page = MetricsPage::create(dir_, "fabricd");
    ASSERT_TRUE(page) << page.error().message;
    constexpr std::size_t kSeries = 4000;
    for (std::size_t i = 0; i < kSeries; ++i)
      page->counter(Metric::process_series_dropped, {std::to_string(i)}).add(7);
    const auto read = emu::parse_page(page->bytes());
    ASSERT_TRUE(read) << read.error().message;
    EXPECT_GT(read->series.size(), 100U);
    EXPECT_LT(read->series.size(), 2000U);
    // The process's own two series are there; what found no room is counted in one of them.
    const auto own = std::ranges::find_if(read->series, [](const SeriesValue& series) {
      return series.name == "flitnet_process_series_dropped_total" &&
             series.labels.at(0).second == "fabricd";
    });
    ASSERT_NE(own, read->series.end());
    EXPECT_EQ(own->raw, kSeries + 2 - read->series.size());
    const auto other = MetricsPage::create(dir_, "hcad");
    ASSERT_FALSE(other);
    EXPECT_NE(other.error().message.find("No space left"), std::string::npos)
        << other.error().message;
  }
  ASSERT_EQ(::umount(dir_.c_str()), 0);
}

}  // namespace
