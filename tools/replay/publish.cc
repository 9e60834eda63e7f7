// The replayer's metrics page: what it counted, for whoever looks while it runs.
#include <unistd.h>

#include <algorithm>

#include "tools/replay/replayer.h"

namespace tools {

// Also when a stream was added: asking for a series again gives the same one.
void Replayer::open_metrics() {
  if (!page_) {
    const std::string name = "replay-" + options_.node;
    auto page = emu::MetricsPage::create(options_.metrics_run, name);
    if (!page) {  // another replayer of this node runs
      page =
          emu::MetricsPage::create(options_.metrics_run, name + "-" + std::to_string(::getpid()));
    }
    if (!page) {
      say(page.error().message + "; going on without metrics");
      return;
    }
    page_.emplace(*std::move(page));
  }
  using M = emu::Metric;
  for (std::size_t i = sender_metrics_.size(); i < senders_.size(); ++i) {
    const StreamPlan& p = senders_[i].plan();
    sender_metrics_.push_back(
        {.admitted = page_->gauge(M::stream_admitted, {p.name, p.from, p.to}),
         .rejected_by = page_->gauge(M::stream_rejected_by, {p.name, p.from, p.to}),
         .frames = page_->counter(M::stream_frames_sent, {p.name, p.from, p.to}),
         .bytes = page_->counter(M::stream_bytes_sent, {p.name, p.from, p.to}),
         .refused = page_->counter(M::stream_posts_refused, {p.name, p.from, p.to})});
  }
  for (std::size_t i = sink_metrics_.size(); i < sinks_.size(); ++i) {
    const StreamPlan& p = sinks_[i].plan();
    sink_metrics_.push_back(
        {.frames = page_->counter(M::stream_frames_delivered, {p.name, p.from, p.to}),
         .late = page_->counter(M::stream_frames_late, {p.name, p.from, p.to}),
         .bytes = page_->counter(M::stream_bytes_delivered, {p.name, p.from, p.to}),
         .corrupt = page_->counter(M::stream_bytes_corrupt, {p.name, p.from, p.to}),
         .lost = page_->counter(M::stream_lost, {p.name, p.from, p.to}),
         .duplicated = page_->counter(M::stream_duplicated, {p.name, p.from, p.to}),
         .dmp = page_->gauge(M::stream_dmp, {p.name, p.from, p.to}),
         .dmt = page_->gauge(M::stream_dmt, {p.name, p.from, p.to}),
         .interval = page_->gauge(M::stream_interval_mean, {p.name, p.from, p.to}),
         .deviation = page_->gauge(M::stream_interval_sd, {p.name, p.from, p.to})});
  }
}

// The page stays as the streams' last word, for whoever looks after the end. Of streams that were
// neither admitted nor refused there is none: they would be waiting for ever.
void Replayer::publish() {
  const bool sent = std::ranges::any_of(senders_, [](const Sender& sender) {
    return sender.admitted() || sender.state() == SendState::rejected;
  });
  const bool received = std::ranges::any_of(sinks_, [](const Sink& sink) {
    return sink.counts().frames > 0 || sink.frames_sent().value_or(0) > 0 ||
           sink.state() == SinkState::rejected;
  });
  if (sent || received) page_->keep_file();
  for (std::size_t i = 0; i < sender_metrics_.size(); ++i) {
    const Sender& sender = senders_[i];
    SenderMetrics& to = sender_metrics_[i];
    to.admitted.set(sender.admitted() ? 1 : 0);
    to.rejected_by.set(sender.rejected_by());
    to.frames.set(sender.counts().frames);
    to.bytes.set(sender.counts().bytes);
    to.refused.set(sender.counts().credit_refusals);
  }
  for (std::size_t i = 0; i < sink_metrics_.size(); ++i) {
    const SinkCounts& counts = sinks_[i].counts();
    const DeadlineMeter& meter = sinks_[i].meter();
    SinkMetrics& to = sink_metrics_[i];
    to.frames.set(counts.frames);
    to.late.set(meter.missed());
    to.bytes.set(counts.bytes);
    to.corrupt.set(counts.bytes_corrupt);
    to.lost.set(counts.lost);
    to.duplicated.set(counts.duplicated);
    to.dmp.set(meter.dmp());
    to.dmt.set(meter.dmt_ms() / 1e3);
    to.interval.set(meter.interval_mean_ms() / 1e3);
    to.deviation.set(meter.interval_sd_ms() / 1e3);
  }
}

}  // namespace tools
