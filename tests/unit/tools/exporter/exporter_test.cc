// Families, JSON and the sysfs tree from pages made here.
#include <gtest/gtest.h>
#include <poll.h>
#include <prometheus/text_serializer.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "emu/metrics/page.h"
#include "tools/exporter/collect.h"
#include "tools/exporter/json.h"
#include "tools/exporter/sysfs.h"
#include "tools/exporter/watch.h"

namespace {

using emu::Metric;
using emu::MetricsPage;

class Exporter : public testing::Test {
 protected:
  Exporter() {
    char pattern[] = "/tmp/flitnet-test-XXXXXX";
    dir_ = mkdtemp(pattern);
  }
  ~Exporter() override { std::filesystem::remove_all(dir_); }

  std::string exposed() const {
    return prometheus::TextSerializer().Serialize(tools::families_of(emu::read_pages(dir_)));
  }
  static std::string read(const std::string& path) {
    std::stringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
  }
  std::string dir_;
};

const std::vector<std::size_t> kAll = {0, 1};  // nodes

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST_F(Exporter, CountersGaugesAndScales) {
  auto page = *MetricsPage::create(dir_, "hcad-n0");
  page.counter(Metric::port_xmit_data, {"n0", "flitnet0", "1"}).add(10);
  page.gauge(Metric::power_cap).set(2.5);
  const std::string text = exposed();
  EXPECT_TRUE(has(text,
                  "# TYPE flitnet_device_port_data_transmitted_bytes_total counter\n"
                  "flitnet_device_port_data_transmitted_bytes_total{node=\"n0\","
                  "device=\"flitnet0\",port=\"1\"} 40\n"))
      << text;
  EXPECT_TRUE(has(text, "# HELP flitnet_power_cap_watts The cap.\n")) << text;
  EXPECT_TRUE(has(text, "flitnet_power_cap_watts 2.5\n")) << text;
}

// 1000 values of 20 us: none below 16.384 us, all below 32.768 us.
TEST_F(Exporter, HistogramsAreCumulativeInSeconds) {
  auto page = *MetricsPage::create(dir_, "hcad-n0");
  page.histogram(Metric::clock_lag).add(20'000, 1000);
  page.histogram(Metric::clock_lag).add(100, 1);                  // below the first bound
  page.histogram(Metric::clock_lag).add(std::uint64_t{1} << 40);  // beyond the last
  const auto families = tools::families_of(emu::read_pages(dir_));
  for (const auto& family : families) {
    if (family.name != "flitnet_clock_lag_seconds") continue;
    const auto& histogram = family.metric[0].histogram;
    EXPECT_EQ(histogram.sample_count, 1002u);
    for (const auto& bucket : histogram.bucket) {
      const bool above = bucket.upper_bound >= 32.768e-6 * 0.999;
      EXPECT_EQ(bucket.cumulative_count, above ? 1001u : 1u) << bucket.upper_bound;
    }
    return;
  }
  FAIL() << "no such family";
}

TEST_F(Exporter, ASeriesOfTwoPagesIsExportedOnce) {
  auto a = *MetricsPage::create(dir_, "a");
  auto b = *MetricsPage::create(dir_, "b");
  a.gauge(Metric::power_cap).set(1);
  b.gauge(Metric::power_cap).set(2);
  const std::string text = exposed();
  EXPECT_TRUE(has(text, "flitnet_power_cap_watts 1\n"));
  EXPECT_FALSE(has(text, "flitnet_power_cap_watts 2\n"));
}

// The last words of a replayer that ended must not hide what the next one of the stream counts.
TEST_F(Exporter, ALivingPageGoesBeforeOneThatEnded) {
  for (const char* name : {"replay-n0-77", "replay-n0-88"}) {
    auto ended = *MetricsPage::create(dir_, name);
    ended.counter(Metric::stream_frames_sent, {"s1", "n0", "n1"}).add(name[10] == '7' ? 600 : 700);
    ended.gauge(Metric::stream_dmp, {"s1", "n0", "n1"}).set(name[10] == '7' ? 0.6 : 0.7);
    ended.keep_file();
  }
  const std::string labels = "{stream=\"s1\",from=\"n0\",to=\"n1\"} ";
  const std::string series = "flitnet_stream_transmitted_frames_total" + labels;
  const std::string ratio = "flitnet_stream_deadline_missing_ratio" + labels;
  EXPECT_TRUE(has(exposed(), series + "1300\n")) << exposed();
  EXPECT_TRUE(has(exposed(), ratio + "0.7\n")) << exposed();  // the newer of two
  auto page = *MetricsPage::create(dir_, "replay-n0");
  page.counter(Metric::stream_frames_sent, {"s1", "n0", "n1"}).add(5);
  page.gauge(Metric::stream_dmp, {"s1", "n0", "n1"}).set(0.25);
  EXPECT_TRUE(has(exposed(), series + "1305\n")) << exposed();
  EXPECT_TRUE(has(exposed(), ratio + "0.25\n")) << exposed();
}

// Two generators of a node, of the same kind: each has a page, and they end when they like. The
// counter of both never falls.
TEST_F(Exporter, CountersOfGeneratorsNeverFall) {
  const tools::PageCollector collector(dir_);
  const auto exported = [&](std::string_view name) {
    const auto families = collector.Collect();
    const auto found = std::ranges::find(families, name, &prometheus::MetricFamily::name);
    EXPECT_NE(found, families.end()) << name;
    EXPECT_EQ(found->metric.size(), 1U);
    const auto& one = found->metric[0];
    return found->type == prometheus::MetricType::Counter
               ? one.counter.value
               : static_cast<double>(one.histogram.sample_count);
  };
  const auto counts = [&](const char* process, std::uint64_t sent) {
    auto page = *MetricsPage::create(dir_, process);
    page.counter(Metric::load_sent, {"control", "n0", "all", "control"}).add(sent);
    page.histogram(Metric::load_latency, {"control", "all", "n0", "control"}).add(5000, sent);
    return page;
  };
  constexpr std::string_view kSent = "flitnet_load_transmitted_messages_total";
  constexpr std::string_view kLatency = "flitnet_load_latency_seconds";
  auto first = std::make_unique<MetricsPage>(counts("load-n0", 100));
  EXPECT_EQ(exported(kSent), 100);
  auto second = std::make_unique<MetricsPage>(counts("load-n0-16356", 50));
  EXPECT_EQ(exported(kSent), 150);
  EXPECT_EQ(exported(kLatency), 150);
  first.reset();  // takes its page away
  EXPECT_EQ(exported(kSent), 150);
  EXPECT_EQ(exported(kLatency), 150);
  first = std::make_unique<MetricsPage>(counts("load-n0", 7));  // a page of the same name
  EXPECT_EQ(exported(kSent), 157);
  std::filesystem::copy(first->path(), dir_ + "/copy");
  first.reset();
  std::filesystem::rename(dir_ + "/copy", dir_ + "/metrics/load-n0.page");  // as if it was killed
  EXPECT_EQ(exported(kSent), 157);
  EXPECT_EQ(exported(kLatency), 157);
  second.reset();
  EXPECT_EQ(exported(kSent), 157) << "nobody counts it now";
  first = std::make_unique<MetricsPage>(counts("load-n0", 1));
  EXPECT_EQ(exported(kSent), 158);
  // What it counts between the last look and its end.
  const auto count_on = [](MetricsPage& page) {
    page.counter(Metric::load_sent, {"control", "n0", "all", "control"}).add(1000);
    page.histogram(Metric::load_latency, {"control", "all", "n0", "control"}).add(5000, 1000);
  };
  count_on(*first);
  first.reset();
  EXPECT_EQ(exported(kSent), 1158);
  EXPECT_EQ(exported(kLatency), 1158);
  first = std::make_unique<MetricsPage>(counts("load-n0", 2));
  EXPECT_EQ(exported(kSent), 1160);
  count_on(*first);
  first.reset();
  first = std::make_unique<MetricsPage>(counts("load-n0", 3));  // of the same name, at once
  EXPECT_EQ(exported(kSent), 2163);
  EXPECT_EQ(exported(kLatency), 2163);
  EXPECT_EQ(exported("flitnet_process_series_dropped_total"), 0) << "of the one that lives";
}

// Programs that live for less than any time between two looks.
TEST_F(Exporter, PagesThatComeAndGoAreSeenAtOnce) {
  tools::PageWatch watch(dir_);
  const tools::PageCollector collector(dir_);
  EXPECT_FALSE(watch.changed());
  MetricsPage::create(dir_, "load-n1");  // the first makes the folder of the pages
  EXPECT_TRUE(watch.changed());
  EXPECT_FALSE(watch.changed());
  for (int i = 0; i < 6; ++i) {
    auto page = std::make_unique<MetricsPage>(*MetricsPage::create(dir_, "load-n0"));
    pollfd ready{watch.fd(), POLLIN, 0};
    EXPECT_EQ(::poll(&ready, 1, 0), 1);
    ASSERT_TRUE(watch.changed());
    collector.look();
    page->counter(Metric::load_sent, {"control", "n0", "all", "control"}).add(10);
    page.reset();
    EXPECT_TRUE(watch.changed());
    EXPECT_FALSE(watch.changed());
  }
  const auto families = collector.Collect();
  const auto sent = std::ranges::find(families, "flitnet_load_transmitted_messages_total",
                                      &prometheus::MetricFamily::name);
  ASSERT_NE(sent, families.end());
  EXPECT_EQ(sent->metric[0].counter.value, 60);
  std::filesystem::remove_all(dir_ + "/metrics");
  EXPECT_TRUE(watch.changed());
  EXPECT_FALSE(watch.changed());
  MetricsPage::create(dir_, "load-n1");
  EXPECT_TRUE(watch.changed()) << "the folder was made anew";
}

// A daemon that starts again is a reset, as of every program that Prometheus knows: what fabricd
// has counted of time and cycles it goes on with itself.
TEST_F(Exporter, CountersOfADaemonAreItsOwn) {
  const tools::PageCollector collector(dir_);
  for (const std::uint64_t seconds : {5, 7}) {
    auto page = *MetricsPage::create(dir_, "fabricd");
    page.counter(Metric::clock_emulated).add(seconds * 1'000'000'000);
    const auto families = collector.Collect();
    const auto found = std::ranges::find(families, "flitnet_clock_emulated_seconds_total",
                                         &prometheus::MetricFamily::name);
    ASSERT_NE(found, families.end());
    EXPECT_DOUBLE_EQ(found->metric[0].counter.value, static_cast<double>(seconds));
  }
}

// Prometheus's "le" includes its bound: what lies above a bound must not be one that equals it.
TEST_F(Exporter, ValuesThatAreABoundAreBelowTheNext) {
  auto page = *MetricsPage::create(dir_, "fabricd");
  page.histogram(Metric::clock_lag).add(1024, 10);
  for (const auto& family : tools::families_of(emu::read_pages(dir_))) {
    if (family.name != "flitnet_clock_lag_seconds") continue;
    for (const auto& bucket : family.metric[0].histogram.bucket) {
      EXPECT_EQ(bucket.cumulative_count, bucket.upper_bound >= 1.024e-6 ? 10u : 0u)
          << bucket.upper_bound;
    }
    return;
  }
  FAIL() << "no such family";
}

TEST_F(Exporter, JsonHasEverySeries) {
  auto page = *MetricsPage::create(dir_, "hcad-n0");
  page.histogram(Metric::class_latency, {"n0", "flitnet0", "control"}).add(1'000'000, 5);
  const std::string json = tools::pages_json(emu::read_pages(dir_));
  EXPECT_TRUE(has(json, "\"process\":\"hcad-n0\"")) << json;
  EXPECT_TRUE(has(json, "\"class\":\"control\"")) << json;
  EXPECT_TRUE(has(json, "\"count\":5")) << json;
  EXPECT_TRUE(has(tools::catalog_json(), "\"name\":\"flitnet_power_cap_watts\""));
}

TEST_F(Exporter, SysfsTreeFollowsThePages) {
  emu::Config config;
  auto tree = tools::SysfsTree::make(dir_ + "/sys", config, kAll);
  ASSERT_TRUE(tree) << tree.error().message;
  const std::string device = dir_ + "/sys/class/infiniband/n1-flitnet0/";
  EXPECT_EQ(read(device + "node_guid"), "0002:c903:0000:0002\n");
  EXPECT_EQ(read(device + "ports/1/state"), "1: DOWN\n");
  EXPECT_EQ(read(device + "ports/1/counters/port_xmit_data"), "0\n");
  EXPECT_EQ(read(device + "ports/1/link_layer"), "InfiniBand\n");
  EXPECT_EQ(read(device + "ports/1/cap_mask"), "0x02000840\n");
  EXPECT_EQ(read(dir_ + "/sys/class/infiniband/n0-flitnet0/ports/1/cap_mask"), "0x02000842\n")
      << "where the subnet's manager is";
  EXPECT_FALSE(std::filesystem::exists(device + "ports/1/gids/1"));
  std::ifstream open_counter(device + "ports/1/counters/port_xmit_data");
  {
    auto page = *MetricsPage::create(dir_, "hcad-n1");
    page.gauge(Metric::port_up, {"n1", "flitnet0", "1"}).set(1);
    page.counter(Metric::port_xmit_data, {"n1", "flitnet0", "1"}).add(77);
    ASSERT_TRUE(tree->update(emu::read_pages(dir_)));
  }
  EXPECT_EQ(read(device + "ports/1/state"), "4: ACTIVE\n");
  EXPECT_EQ(read(device + "ports/1/phys_state"), "5: LinkUp\n");
  // The kernel counts words of four bytes here, as the page does.
  EXPECT_EQ(read(device + "ports/1/counters/port_xmit_data"), "77\n");
  // Who has the file open since before reads it too.
  std::string line;
  EXPECT_TRUE(std::getline(open_counter, line) && line == "77") << line;
  EXPECT_EQ(read(dir_ + "/sys/nodes/n1/class/infiniband/flitnet0/ports/1/state"), "4: ACTIVE\n");
  // The process is gone: down, with its last values.
  ASSERT_TRUE(tree->update(emu::read_pages(dir_)));
  EXPECT_EQ(read(device + "ports/1/state"), "1: DOWN\n");
  EXPECT_EQ(read(device + "ports/1/counters/port_xmit_data"), "77\n");
  tree->remove();
  EXPECT_FALSE(std::filesystem::exists(dir_ + "/sys"));
}

TEST_F(Exporter, SysfsTreeTellsMulticastFromUnicast) {
  const std::string counters = dir_ + "/sys/class/infiniband/n1-flitnet0/ports/1/counters/";
  auto page = *MetricsPage::create(dir_, "hcad-n1");
  std::uint64_t value = 0;
  for (const Metric metric :
       {Metric::port_xmit_packets, Metric::unicast_xmit_packets, Metric::multicast_xmit_packets,
        Metric::port_rcv_packets, Metric::unicast_rcv_packets, Metric::multicast_rcv_packets}) {
    page.counter(metric, {"n1", "flitnet0", "1"}).add(++value);
  }
  ASSERT_TRUE(tools::SysfsTree::make(dir_ + "/sys", emu::Config(), kAll, emu::read_pages(dir_)));
  value = 0;
  for (const char* direction : {"xmit", "rcv"}) {
    for (const char* kind : {"port", "unicast", "multicast"}) {
      EXPECT_EQ(read(fmt::format("{}{}_{}_packets", counters, kind, direction)),
                fmt::format("{}\n", ++value));
    }
  }
}

TEST_F(Exporter, SysfsTreeOfRoce) {
  emu::Config config;
  config.hca.link_layer = emu::LinkLayer::roce_v2;
  config.nodes[1].ip = "10.0.0.7";
  ASSERT_TRUE(tools::SysfsTree::make(dir_ + "/sys", config, kAll));
  const std::string port = dir_ + "/sys/class/infiniband/n1-flitnet0/ports/1/";
  EXPECT_EQ(read(port + "link_layer"), "Ethernet\n");
  EXPECT_EQ(read(port + "lid"), "0x0\n");
  EXPECT_EQ(read(port + "gids/1"), "0000:0000:0000:0000:0000:ffff:0a00:0007\n");
  EXPECT_EQ(read(port + "gid_attrs/types/0"), "RoCE v2\n");
  for (const char* gid : {"0", "1"}) {
    const std::string name = read(port + "gid_attrs/ndevs/" + gid);
    EXPECT_EQ(name, "lo\n");
    EXPECT_TRUE(std::filesystem::is_directory(port + "../../device/net/" +
                                              name.substr(0, name.find('\n'))));
  }
  EXPECT_EQ(read(dir_ + "/sys/class/infiniband/n0-flitnet0/ports/1/gids/1"),
            "0000:0000:0000:0000:0000:ffff:7f01:0001\n");
}

// Two exporters of one cluster: the tree is the first one's as long as it lives.
TEST_F(Exporter, SysfsTreeHasOneKeeper) {
  const std::string state = dir_ + "/sys/class/infiniband/n1-flitnet0/ports/1/state";
  {
    auto tree = tools::SysfsTree::make(dir_ + "/sys", emu::Config(), kAll);
    ASSERT_TRUE(tree);
    const auto second = tools::SysfsTree::make(dir_ + "/sys", emu::Config(), kAll);
    ASSERT_FALSE(second);
    EXPECT_TRUE(has(second.error().message, "another exporter")) << second.error().message;
    EXPECT_EQ(read(state), "1: DOWN\n");
  }
  // One that was killed leaves its tree to the next.
  EXPECT_TRUE(tools::SysfsTree::make(dir_ + "/sys", emu::Config(), kAll));
}

// What it begins with is true: of nodes that live as their pages have it, of the others the last
// values, and that they are down.
TEST_F(Exporter, SysfsTreeOfTheNextIsTrueFromTheStart) {
  const std::string port = dir_ + "/sys/class/infiniband/n1-flitnet0/ports/1/";
  auto page = *MetricsPage::create(dir_, "hcad-n1");
  page.gauge(Metric::port_up, {"n1", "flitnet0", "1"}).set(1);
  page.counter(Metric::port_xmit_data, {"n1", "flitnet0", "1"}).add(77);
  const auto pages = emu::read_pages(dir_);
  ASSERT_TRUE(tools::SysfsTree::make(dir_ + "/sys", emu::Config(), kAll, pages));
  EXPECT_EQ(read(port + "state"), "4: ACTIVE\n");
  EXPECT_EQ(read(port + "counters/port_xmit_data"), "77\n");
  ASSERT_TRUE(tools::SysfsTree::make(dir_ + "/sys", emu::Config(), kAll));
  EXPECT_EQ(read(port + "state"), "1: DOWN\n");
  EXPECT_EQ(read(port + "counters/port_xmit_data"), "77\n");
}

// Nodes of other hosts are not down here: there is nothing of them.
TEST_F(Exporter, SysfsTreeHasTheNodesOfThisHost) {
  auto tree = tools::SysfsTree::make(dir_ + "/sys", emu::Config(), {1});
  ASSERT_TRUE(tree);
  ASSERT_TRUE(tree->update({}));
  EXPECT_TRUE(std::filesystem::exists(dir_ + "/sys/class/infiniband/n1-flitnet0"));
  EXPECT_FALSE(std::filesystem::exists(dir_ + "/sys/class/infiniband/n0-flitnet0"));
  EXPECT_FALSE(std::filesystem::exists(dir_ + "/sys/nodes/n0"));
  tree->remove();
  EXPECT_FALSE(std::filesystem::exists(dir_ + "/sys"));
  ASSERT_TRUE(tools::SysfsTree::make(dir_ + "/sys", emu::Config(), {}));
}

TEST_F(Exporter, SysfsTreeThatCannotBeMade) {
  std::ofstream(dir_ + "/sys") << "a file";
  EXPECT_FALSE(tools::SysfsTree::make(dir_ + "/sys", emu::Config(), kAll));
}

}  // namespace
