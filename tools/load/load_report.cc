// What a generator says at its end, and its metrics page.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "tools/load/generator.h"

namespace tools {

void Generator::open_metrics() {
  const std::string name = "load-" + options_.node;
  auto page = emu::MetricsPage::create(options_.metrics_run, name);
  if (!page) {  // another generator of this node runs
    page = emu::MetricsPage::create(options_.metrics_run, name + "-" + std::to_string(::getpid()));
  }
  if (!page) {
    say_load(page.error().message + "; going on without metrics");
    return;
  }
  page_.emplace(*std::move(page));
  using M = emu::Metric;
  for (const Flow& flow : flows_) {
    const std::string& kind = flow.options().kind;
    const std::string& traffic = flow.options().traffic_class;
    // Sums over all peers: a series for each pair of nodes would be many and say little.
    const std::initializer_list<std::string_view> out = {kind, options_.node, "all", traffic};
    const std::initializer_list<std::string_view> in = {kind, "all", options_.node, traffic};
    metrics_.push_back({.sent = page_->counter(M::load_sent, out),
                        .refused = page_->counter(M::load_refused, out),
                        .received = page_->counter(M::load_received, in),
                        .bytes = page_->counter(M::load_received_bytes, in),
                        .lost = page_->counter(M::load_lost, in),
                        .corrupt = page_->counter(M::load_corrupt, in),
                        .latency = page_->histogram(M::load_latency, in)});
  }
}

void Generator::publish() {
  for (std::size_t i = 0; i < metrics_.size(); ++i) {
    const FlowCounts& counts = flows_[i].counts();
    FlowMetrics& to = metrics_[i];
    to.sent.set(counts.sent);
    to.refused.set(counts.refused);
    to.received.set(counts.received);
    to.bytes.set(counts.received_bytes);
    to.lost.set(counts.lost);
    to.corrupt.set(counts.corrupt_bytes);
    to.latency.set(flows_[i].latency());
  }
}

namespace {

// [[lowest ns, first ns beyond, count], …]: so that whoever has the files of all nodes can make
// quantiles of the whole.
std::string buckets_json(const emu::PlainHistogram& histogram) {
  std::string out;
  for (std::size_t bucket = 0; bucket < emu::kHistogramBuckets; ++bucket) {
    const std::uint64_t count = histogram.words[2 + bucket];
    if (count == 0) continue;
    out += fmt::format("{}[{},{},{}]", out.empty() ? "" : ",", emu::histogram_bucket_low(bucket),
                       emu::histogram_bucket_high(bucket), count);
  }
  return "[" + out + "]";
}

double behind_us_mean(const FlowCounts& counts) {
  const auto messages = static_cast<double>(std::max<std::uint64_t>(1, counts.behind));
  return static_cast<double>(counts.behind_ns) / 1e3 / messages;
}

std::string behind_text(const FlowCounts& counts) {
  if (counts.behind == 0) return "";
  return fmt::format(
      "; of these {} were posted after their time, by {:.1f} us in the mean and {:.1f} us at most, "
      "and the latency has that in it: the rate asked for could not be kept",
      counts.behind, behind_us_mean(counts), static_cast<double>(counts.behind_ns_max) / 1e3);
}

}  // namespace

std::string load_json(const Generator& generator) {
  std::string loads;
  std::uint64_t lost = 0;
  std::uint64_t duplicated = 0;
  for (const Flow& flow : generator.flows()) {
    const FlowCounts& counts = flow.counts();
    const emu::HistogramSummary latency = flow.latency().summary();
    lost += counts.lost;
    duplicated += counts.duplicated;
    loads += fmt::format(
        R"({}{{"kind":"{}","class":"{}","sent":{},"refused":{},"late":{},)"
        R"("behind":{},"behind_us_mean":{:.3f},"behind_us_max":{:.3f},"errors":{},)"
        R"("received":{},"received_bytes":{},"lost":{},"duplicated":{},"bytes_corrupt":{},)"
        R"("foreign":{},"latency_us_mean":{:.3f},"latency_us_p50":{:.3f},"latency_us_p99":{:.3f},)"
        R"("latency_us_max":{:.3f},"latency_ns_buckets":{}}})",
        loads.empty() ? "\n  " : ",\n  ", flow.options().kind, flow.options().traffic_class,
        counts.sent, counts.refused, counts.late, counts.behind, behind_us_mean(counts),
        static_cast<double>(counts.behind_ns_max) / 1e3, counts.errors, counts.received,
        counts.received_bytes, counts.lost, counts.duplicated, counts.corrupt_bytes, counts.foreign,
        latency.mean / 1e3, latency.p50 / 1e3, latency.p99 / 1e3, latency.max / 1e3,
        buckets_json(flow.latency()));
  }
  return fmt::format("{{\"node\":\"{}\",\"lost\":{},\"duplicated\":{},\"loads\":[{}\n]}}\n",
                     generator.options().node, lost, duplicated, loads);
}

std::string load_text(const Generator& generator) {
  std::string out;
  for (const Flow& flow : generator.flows()) {
    const FlowCounts& counts = flow.counts();
    const emu::HistogramSummary latency = flow.latency().summary();
    out += fmt::format(
        "{}: sent {}, received {}, lost {}, duplicated {}, {} corrupt bytes, latency mean {:.1f} "
        "us, p99 {:.1f} us{}\n",
        flow.options().kind, counts.sent, counts.received, counts.lost, counts.duplicated,
        counts.corrupt_bytes, latency.mean / 1e3, latency.p99 / 1e3, behind_text(counts));
  }
  return out;
}

}  // namespace tools
