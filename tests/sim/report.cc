// The JSON of a run, as `flitnet demo --json` documents it.
#include <fmt/format.h>

#include "tests/sim/run.h"

namespace sim {

namespace {

std::string refused_by(const hca::AdmissionOutcome& outcome, const std::string& from) {
  switch (outcome.verdict) {
    case hca::AdmissionVerdict::granted:
      return "null";
    case hca::AdmissionVerdict::refused_by_hca:
      return fmt::format("\"hca {}\"", from);
    case hca::AdmissionVerdict::refused_by_router:
      return fmt::format("\"switch {}\"", outcome.router);
    default:
      return "\"nobody answered\"";
  }
}

std::string stream_json(const Stream& stream) {
  const tools::DeadlineMeter& meter = stream.deadlines();
  return fmt::format(
      "    {{\"name\": \"{}\", \"from\": \"{}\", \"to\": \"{}\", \"admitted\": {}, "
      "\"rejected_by\": {}, \"frames_sent\": {}, \"posts_refused\": {}, "
      "\"frames_delivered\": {}, \"frames_late\": {}, \"bytes_corrupt\": {}, \"lost\": {}, "
      "\"duplicated\": {}, \"dmp\": {:.6f}, \"dmt_ms\": {:.6f}, \"interval_ms_mean\": {:.6f}, "
      "\"interval_ms_sd\": {:.6f}}}",
      stream.plan().name, stream.plan().from, stream.plan().to, stream.admitted(),
      refused_by(stream.outcome(), stream.plan().from), stream.sent(), stream.credit_refusals(),
      stream.received(), meter.missed(), stream.bytes_corrupt(), stream.lost(), stream.duplicated(),
      meter.dmp(), meter.dmt_ms(), meter.interval_mean_ms(), meter.interval_sd_ms());
}

}  // namespace

std::string Run::json() const {
  const emu::Config& config = cluster_->config();
  std::string streams;
  for (const auto& stream : streams_) {
    streams += (streams.empty() ? "\n" : ",\n") + stream_json(*stream);
  }
  std::string classes;
  for (std::size_t c = 0; c < emu::kClassCount; ++c) {
    const ClassMeter& meter = cluster_->classes()[c];
    const emu::HistogramSummary latency = emu::summarize_histogram(meter.latency_ns.words);
    classes += fmt::format(
        "{}\n    \"{}\": {{\"packets\": {}, \"latency_count\": {}, \"latency_us_total\": {:.3f}, "
        "\"latency_us_mean\": {:.3f}, \"latency_us_p99\": {:.3f}}}",
        c == 0 ? "" : ",", emu::kClassNames[c], meter.packets, latency.count,
        latency.mean / 1000 * static_cast<double>(latency.count), latency.mean / 1000,
        latency.p99 / 1000);
  }
  const emu::PowerMeter& power = cluster_->power();
  return fmt::format(
      "{{\n  \"nodes\": {}, \"link_mbps\": {}, \"flit_bits\": {}, \"seconds\": {},\n"
      "  \"clock\": {{\"mode\": \"virtual\", \"dilation\": 1.0, \"lag_us_p99\": 0.0}},\n"
      "  \"streams\": [{}\n  ],\n  \"classes\": {{{}\n  }},\n"
      "  \"power\": {{\"cap_w\": {:.6f}, \"mean_w\": {:.6f}, \"max_w\": {:.6f}}},\n"
      "  \"lost\": {}, \"duplicated\": {}\n}}\n",
      config.nodes.size(), config.network.link_mbps, config.network.flit_bits, scenario_.seconds,
      streams, classes, power.cap_w(), power.mean_w(), power.max_w(), lost(), duplicated());
}

}  // namespace sim
