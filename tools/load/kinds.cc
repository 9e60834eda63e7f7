#include "tools/load/kinds.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "tools/load/message.h"
#include "tools/replay/frame_header.h"

namespace tools {
namespace {

constexpr double kControlGapNs = 33.3e6 / 10;  // ten packets per 33.3 ms

}  // namespace

emu::Result<double> parse_rate(std::string_view text) {
  double value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  double unit = 0;
  const std::string_view suffix(stop, static_cast<std::size_t>(end - stop));
  if (suffix.empty()) unit = 1;
  if (suffix == "k" || suffix == "K") unit = 1e3;
  if (suffix == "M") unit = 1e6;
  if (suffix == "G") unit = 1e9;
  constexpr double kRateMax = 1e12;
  if (error != std::errc{} || unit == 0 || !(value > 0) || value * unit > kRateMax) {
    return emu::fail("'{}' is no rate; say bits per second, as 48M", text);
  }
  return value * unit;
}

std::uint32_t ud_payload(std::uint32_t flits, const KindOptions& options) {
  const std::uint32_t bytes = flits * options.flit_bytes;
  const std::uint32_t left = bytes > options.header_bytes ? bytes - options.header_bytes : 0;
  return std::max(left / 4 * 4, static_cast<std::uint32_t>(kLoadStampBytes));
}

std::string_view flits_option(std::string_view kind) {
  return kind == "control" ? "--control-flits" : "--packet-flits";
}

bool is_stream_kind(std::string_view kind) { return kind == "cbr" || kind == "vbr"; }

emu::Result<std::vector<StreamPlan>> synthetic_streams(const std::string& kind,
                                                       const std::string& node,
                                                       const std::vector<std::string>& to,
                                                       double bps, std::uint64_t seed) {
  constexpr double kStreamBps = 4e6;
  constexpr long kCountMax = 1000;
  const long count = bps > 0 ? std::lround(bps / kStreamBps) : 1;
  if (count < 1 || count > kCountMax) {
    return emu::fail("{} of {:g} b/s: streams have 4 Mb/s each, 1 to {} go", kind, bps, kCountMax);
  }
  std::vector<StreamPlan> streams;
  for (std::size_t i = 0; i < static_cast<std::size_t>(count) && !to.empty(); ++i) {
    StreamPlan stream{.from = node, .to = to[i % to.size()], .rate = {}};
    stream.name = fmt::format("{}-{}-{}-{}", kind, node, stream.to, i);
    // Metrics cut longer labels: streams between nodes of long names would count as one.
    constexpr std::size_t kNameMax = 48;
    if (stream.name.size() > kNameMax) {
      stream.name = fmt::format("{}-{:016x}-{}", kind, stream_hash(stream.name), i);
    }
    stream.clip = kind == "cbr" ? kind : fmt::format("vbr:{}", seed ^ stream_hash(stream.name));
    stream.phase_us = static_cast<std::uint32_t>(i * 33'333 / static_cast<std::size_t>(count));
    streams.push_back(std::move(stream));
  }
  return streams;
}

emu::Result<Profile> parse_profile(std::string_view word) {
  const std::size_t equals = word.find('=');
  Profile found{.kind = std::string(word.substr(0, equals)), .factors = {}};
  std::string_view rest = equals == word.npos ? "" : word.substr(equals + 1);
  bool right = !rest.empty();
  while (right && !rest.empty()) {
    double factor = -1;
    const auto [stop, error] = std::from_chars(rest.data(), rest.data() + rest.size(), factor);
    rest.remove_prefix(static_cast<std::size_t>(stop - rest.data()));
    right = error == std::errc{} && factor >= 0 && factor <= 1e6 &&
            (rest.empty() || rest.size() > 1) && (rest.empty() || rest.front() == ',');
    if (right && !rest.empty()) rest.remove_prefix(1);
    found.factors.push_back(factor);
  }
  if (!right || std::ranges::max(found.factors) <= 0) {
    return emu::fail("'{}' is no profile; say factors of a kind's rate, as best-effort=1,0.5",
                     word);
  }
  return found;
}

emu::Result<FlowOptions> parse_kind(std::string_view word, const KindOptions& options) {
  const std::size_t equals = word.find('=');
  const std::string_view kind = word.substr(0, equals);
  double bps = options.default_bps;
  if (equals != std::string_view::npos) {
    const auto rate = parse_rate(word.substr(equals + 1));
    if (!rate) return std::unexpected(rate.error());
    bps = *rate;
  }
  FlowOptions flow{.kind = std::string(kind), .seed = options.seed ^ stream_hash(kind)};
  const bool control = kind == "control";
  flow.payload_bytes = ud_payload(control ? options.control_flits : options.packet_flits, options);
  constexpr std::uint32_t kMtu = 4096;  // a UD message is one packet
  if (flow.payload_bytes > kMtu) {
    return emu::fail("{}: packets with {} bytes of payload, the most is {}: give fewer {}", kind,
                     flow.payload_bytes, kMtu, flits_option(kind));
  }
  // As many as were asked for, or as the stamp needs: the rate counts what is really sent.
  const std::uint32_t flits =
      (flow.payload_bytes + options.header_bytes + options.flit_bytes - 1) / options.flit_bytes;
  const double packet_bits = flits * options.flit_bytes * 8.0;
  if (control) {
    flow.traffic_class = "control";
    flow.sl = 15;
    flow.arrivals = {.kind = ArrivalKind::even, .gap_ns = kControlGapNs};
    if (equals == std::string_view::npos) return flow;
  } else if (kind == "best-effort") {
    flow.traffic_class = "best_effort";
    flow.sl = 0;
    flow.arrivals.kind = ArrivalKind::drawn;
    flow.arrivals.law = options.law;
    flow.arrivals.shape = options.pareto_shape;
    flow.arrivals.message_ns = packet_bits * 1e9 / options.link_bps;
  } else if (kind == "on-off") {
    flow.traffic_class = "real_time";
    flow.sl = 1;
    flow.arrivals.kind = ArrivalKind::on_off;
  } else {
    return emu::fail("'{}': kinds of load are best-effort, control, on-off, cbr and vbr", kind);
  }
  if (bps <= 0) return emu::fail("{}: needs a rate, as {}=48M or --rate 48M", kind, kind);
  // The rate of on-off is that while ON: its mean is half of it when ON and OFF are as long.
  flow.arrivals.gap_ns = packet_bits * 1e9 / bps;
  if (flow.arrivals.gap_ns < 1) {
    return emu::fail("{}: more than a packet of {} bits a nanosecond", word, packet_bits);
  }
  return flow;
}

}  // namespace tools
