// Counts in the pages of a pretended cluster until SIGTERM, so that the exporter can be tested
// without one: page_writer RUN_DIR NODE... Or writes one page with a series of each metric of the
// catalogue, and ends: page_writer RUN_DIR.
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <ctime>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "emu/metrics/page.h"

namespace {

using emu::Metric;
using emu::MetricsPage;

struct Node {
  MetricsPage page;
  emu::Counter words, packets;
  emu::Histogram latency;
};

MetricsPage page_of(const std::string& run, const std::string& process) {
  auto page = MetricsPage::create(run, process);
  if (page) return std::move(*page);
  std::fprintf(stderr, "page_writer: %s\n", page.error().message.c_str());
  std::exit(1);
}

// Values that a test can know: see tests/apps/test_metrics.py.
Node make_node(const std::string& run, const std::string& name) {
  Node node{page_of(run, "hcad-" + name), {}, {}, {}};
  MetricsPage& page = node.page;
  page.gauge(Metric::port_up, {name, "flitnet0", "1"}).set(1);
  page.counter(Metric::port_rcv_data, {name, "flitnet0", "1"}).add(1000);
  page.counter(Metric::port_rcv_packets, {name, "flitnet0", "1"}).add(25);
  page.counter(Metric::port_xmit_wait, {name, "flitnet0", "1"}).add(7);
  page.counter(Metric::rc_duplicates, {name, "flitnet0"}).add(3);
  node.words = page.counter(Metric::port_xmit_data, {name, "flitnet0", "1"});
  node.packets = page.counter(Metric::port_xmit_packets, {name, "flitnet0", "1"});
  node.latency = page.histogram(Metric::class_latency, {name, "flitnet0", "real_time"});
  return node;
}

// The words of a finished program, so that they are exported.
int write_every_metric(const std::string& run) {
  MetricsPage page = page_of(run, "every");
  page.keep_file();
  for (const emu::MetricInfo& info : emu::metric_catalog()) {
    const auto metric = *emu::metric_by_name(info.name);
    const auto keys = info.labels.empty() ? 0 : 1 + std::ranges::count(info.labels, ',');
    const std::vector<std::string_view> labels(static_cast<std::size_t>(keys), "x");
    if (info.kind == emu::MetricKind::counter) page.counter(metric, labels).add(1);
    if (info.kind == emu::MetricKind::gauge) page.gauge(metric, labels).set(8);
    if (info.kind == emu::MetricKind::histogram) page.histogram(metric, labels).add(1000);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 2) return write_every_metric(argv[1]);
  if (argc < 3) return 2;
  const std::string run = argv[1];
  sigset_t stop;
  sigemptyset(&stop);
  sigaddset(&stop, SIGTERM);
  sigprocmask(SIG_BLOCK, &stop, nullptr);

  MetricsPage fabric = page_of(run, "fabricd");
  fabric.gauge(Metric::power_cap).set(2.5);
  fabric.gauge(Metric::power_last).set(1.5);
  fabric.gauge(Metric::clock_dilation_window).set(1.01);
  fabric.gauge(Metric::clock_mode, {"elastic"}).set(1);
  auto emulated = fabric.counter(Metric::clock_emulated);
  auto lag = fabric.histogram(Metric::clock_lag);
  auto flits = fabric.counter(Metric::switch_flits, {"0", "1", "4"});
  std::vector<Node> nodes;
  for (int i = 2; i < argc; ++i) nodes.push_back(make_node(run, argv[i]));
  {
    MetricsPage finished = page_of(run, "replay-done");
    finished.keep_file();
    finished.counter(Metric::stream_frames_delivered, {"s0", argv[2], argv[2]}).add(600);
    finished.gauge(Metric::stream_dmp, {"s0", argv[2], argv[2]}).set(0.25);
  }
  std::puts("ready");
  std::fflush(stdout);
  const timespec tick{0, 10'000'000};
  while (sigtimedwait(&stop, nullptr, &tick) < 0) {
    emulated.add(10'000'000);
    lag.add(50'000);
    flits.add(40);
    for (Node& node : nodes) {
      node.words.add(160);
      node.packets.add(1);
      node.latency.add(20'000);
    }
  }
  return 0;
}
