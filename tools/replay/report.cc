#include "tools/replay/report.h"

#include <string_view>

#include <fmt/format.h>

namespace tools {
namespace {

// Names were checked when the plan was read; texts of errors were not.
std::string quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c >= ' ' ? c : ' ';
  }
  return out + '"';
}

// The router's number, "hca", or null.
std::string by(int router) {
  if (router >= 0) return fmt::format("\"r{}\"", router);
  return router == -2 ? "\"hca\"" : "null";
}

std::string_view name_of(SendState state) {
  switch (state) {
    case SendState::waiting:
      return "waiting";
    case SendState::asking:
      return "asking";
    case SendState::connected:
      return "connected";
    case SendState::running:
      return "running";
    case SendState::draining:
      return "draining";
    case SendState::done:
      return "done";
    case SendState::rejected:
      return "rejected";
    case SendState::failed:
      return "failed";
  }
  return "?";
}

std::string_view name_of(SinkState state) {
  switch (state) {
    case SinkState::expected:
      return "waiting";
    case SinkState::open:
      return "running";
    case SinkState::ending:
      return "draining";
    case SinkState::done:
      return "done";
    case SinkState::rejected:
      return "rejected";
    case SinkState::gone:
      return "gone";
    case SinkState::absent:
      return "absent";
    case SinkState::failed:
      return "failed";
  }
  return "?";
}

std::string head(const StreamPlan& plan, std::string_view role, std::string_view state) {
  return fmt::format(R"({{"name":{},"from":{},"to":{},"role":"{}","state":"{}")", quoted(plan.name),
                     quoted(plan.from), quoted(plan.to), role, state);
}

std::string sender_json(const Sender& sender) {
  const SendCounts& counts = sender.counts();
  return head(sender.plan(), "send", name_of(sender.state())) +
         fmt::format(R"(,"admitted":{},"rejected_by":{},"frames_sent":{},"bytes_sent":{},)"
                     R"("frames_acknowledged":{},"credit_refusals":{},"posted_late":{},"why":{}}})",
                     sender.admitted(), by(sender.rejected_by()), counts.frames, counts.bytes,
                     counts.completed, counts.credit_refusals, counts.posted_late,
                     quoted(sender.why()));
}

std::string sink_json(const Sink& sink) {
  const SinkCounts& counts = sink.counts();
  const DeadlineMeter& meter = sink.meter();
  const bool admitted = sink.state() != SinkState::rejected && sink.state() != SinkState::absent &&
                        sink.state() != SinkState::expected;
  return head(sink.plan(), "receive", name_of(sink.state())) +
         fmt::format(R"(,"admitted":{},"rejected_by":{},"frames_sent":{},"frames_delivered":{},)"
                     R"("bytes_delivered":{},"bytes_corrupt":{},"dmp":{:.6f},"dmt_ms":{:.6f},)"
                     R"("interval_ms_mean":{:.6f},"interval_ms_sd":{:.6f},"lost":{},)"
                     R"("duplicated":{},"why":{}}})",
                     admitted, by(sink.rejected_by()),
                     sink.frames_sent() ? fmt::format("{}", *sink.frames_sent()) : "null",
                     counts.frames, counts.bytes, counts.bytes_corrupt, meter.dmp(), meter.dmt_ms(),
                     meter.interval_mean_ms(), meter.interval_sd_ms(), counts.lost,
                     counts.duplicated, quoted(sink.why()));
}

}  // namespace

std::string report_json(const Replayer& replayer) {
  std::string streams;
  std::uint64_t lost = 0;
  std::uint64_t duplicated = 0;
  const auto add = [&streams](const std::string& text) {
    streams += (streams.empty() ? "\n  " : ",\n  ") + text;
  };
  for (const Sender& sender : replayer.senders()) add(sender_json(sender));
  for (const Sink& sink : replayer.sinks()) {
    add(sink_json(sink));
    lost += sink.counts().lost;
    duplicated += sink.counts().duplicated;
  }
  return fmt::format(
      "{{\"node\":{},\"pacing\":\"{}\",\"lost\":{},\"duplicated\":{},\"streams\":[{}\n]}}\n",
      quoted(replayer.options().node), replayer.has_launch() ? "wire" : "software", lost,
      duplicated, streams);
}

std::string report_text(const Replayer& replayer) {
  std::string out;
  for (const Sender& sender : replayer.senders()) {
    out += fmt::format("{} -> {}: {} sent {} frames{}{}\n", sender.plan().name, sender.plan().to,
                       name_of(sender.state()), sender.counts().frames,
                       sender.why().empty() ? "" : ": ", sender.why());
  }
  for (const Sink& sink : replayer.sinks()) {
    const DeadlineMeter& meter = sink.meter();
    out += fmt::format(
        "{} <- {}: {} {} frames, {} corrupt bytes, lost {}, DMP {:.4f}, DMT {:.3f} ms, "
        "interval {:.3f} ms, sd {:.3f} ms{}{}\n",
        sink.plan().name, sink.plan().from, name_of(sink.state()), sink.counts().frames,
        sink.counts().bytes_corrupt, sink.counts().lost, meter.dmp(), meter.dmt_ms(),
        meter.interval_mean_ms(), meter.interval_sd_ms(), sink.why().empty() ? "" : ": ",
        sink.why());
  }
  return out;
}

}  // namespace tools
