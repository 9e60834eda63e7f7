#include "tools/sim/measure.h"

#include <algorithm>
#include <cmath>
#include <span>

#include "emu/base/check.h"
#include "emu/energy/meter.h"

namespace tools {

namespace {

// The papers' 30 frames a second exactly; others to the nanosecond.
FrameRate rate_of(double frame_ms) {
  if (std::abs(frame_ms - 1000.0 / 30) < 1e-9) return {};
  return {1'000'000'000, static_cast<std::uint32_t>(std::lround(frame_ms * 1e6))};
}

void add(std::vector<double>& by_node, emu::NodeId node, double flits) {
  if (node >= by_node.size()) by_node.resize(node + 1U);
  by_node[node] += flits;
}

}  // namespace

Measure::Measure(emu::CycleTime time, emu::Cycle batch_cycles, std::size_t batches,
                 std::size_t streams, double frame_ms)
    : time_(time),
      batch_cycles_(batch_cycles),
      frame_ms_(frame_ms),
      frame_rate_(rate_of(frame_ms)),
      batches_(batches),
      tails_from_(batch_cycles * batches / 2) {
  for (std::size_t i = 0; i < streams; ++i)
    streams_.push_back({.deadlines = DeadlineMeter(frame_rate_)});
}

Batch* Measure::batch_at(emu::Cycle cycle) {
  const std::size_t index = cycle / batch_cycles_;
  return index < batches_.size() ? &batches_[index] : nullptr;
}

void Measure::offered(const FlitMessage& message) {
  if (Batch* batch = batch_at(message.created)) {
    batch->classes[static_cast<std::size_t>(message.traffic_class)].offered_flits += message.flits;
  }
  if (message.traffic_class == emu::TrafficClass::best_effort)
    add(node_offered_flits_, message.source, message.flits);
}

void Measure::delivered(const FlitMessage& message, emu::Cycle head, emu::Cycle tail) {
  if (message.stream != kNoStream) frame_message(message, tail);
  Batch* batch = batch_at(tail);
  if (batch == nullptr) return;
  ClassBatch& one = batch->classes[static_cast<std::size_t>(message.traffic_class)];
  ++one.messages;
  one.flits += message.flits;
  one.network_cycles += static_cast<double>(tail - head);
  one.queue_cycles += static_cast<double>(head - message.accepted);
  one.host_cycles += static_cast<double>(message.accepted - message.created + take_cycles_);
  if (tail < tails_from_) return;
  latencies_[static_cast<std::size_t>(message.traffic_class)].add(tail - message.created +
                                                                  take_cycles_);
  if (message.traffic_class != emu::TrafficClass::best_effort) return;
  add(node_flits_, message.source, message.flits);
}

void Measure::frame_begins(std::uint32_t stream, std::uint32_t frame, std::uint32_t messages) {
  while (stream >= streams_.size()) streams_.push_back({.deadlines = DeadlineMeter(frame_rate_)});
  Stream& one = streams_[stream];
  if (one.frames.empty()) one.oldest = frame;
  CHECK(frame == one.oldest + one.frames.size());
  one.frames.push_back({.missing = messages});
}

bool Measure::end_message(Stream& stream, const FlitMessage& message, bool came) {
  CHECK(message.frame >= stream.oldest && message.frame - stream.oldest < stream.frames.size());
  FrameUnderWay& frame = stream.frames[message.frame - stream.oldest];
  CHECK(frame.missing > 0);
  frame.whole = frame.whole && came;
  const bool complete = --frame.missing == 0 && frame.whole;
  while (!stream.frames.empty() && stream.frames.front().missing == 0) {
    stream.frames.pop_front();
    ++stream.oldest;
  }
  return complete;
}

void Measure::frame_message(const FlitMessage& message, emu::Cycle tail) {
  Stream& stream = streams_[message.stream];
  if (end_message(stream, message, true)) frame_complete(stream, message.frame, tail);
}

void Measure::given_up(const FlitMessage& message) {
  if (message.stream != kNoStream) (void)end_message(streams_[message.stream], message, false);
}

void Measure::frame_complete(Stream& stream, std::uint32_t frame, emu::Cycle tail) {
  const bool any = stream.any;
  const bool follows = any && frame == stream.last_frame + 1;
  const emu::Cycle before = stream.last_tail;
  const FrameVerdict verdict = stream.deadlines.arrive(frame, time_.ns(tail));
  stream.any = true;
  stream.last_frame = std::max(frame, stream.last_frame);
  stream.last_tail = std::max(tail, before);
  Batch* batch = batch_at(tail);
  if (batch == nullptr || !any || tail < before) return;
  // A stream's first frame has no interval, and its own arrival is its deadline.
  ++batch->frames;
  if (verdict.missed) ++batch->missed;
  batch->late_ms += static_cast<double>(verdict.late_ns) / 1e6;
  if (!follows) return;  // the frames between were given up, and no interval ends here
  const double deviation = static_cast<double>(time_.ns(tail - before)) / 1e6 - frame_ms_;
  ++batch->intervals;
  batch->deviation_ms += deviation;
  batch->deviation_sq += deviation * deviation;
}

// Batches may be shorter than a window, and longer ones need not end with one. `visit` takes each
// batch that has cycles of the window, and what part of all they are.
template <class Visit>
void Measure::batches_of_window(emu::Cycle end, Visit&& visit) {
  constexpr emu::Cycle kCycles = emu::kPowerWindowCycles;
  for (emu::Cycle from = end - kCycles; from < end;) {
    const emu::Cycle to = std::min(end, (from / batch_cycles_ + 1) * batch_cycles_);
    if (Batch* batch = batch_at(from))
      visit(*batch, static_cast<double>(to - from) / static_cast<double>(kCycles));
    from = to;
  }
}

void Measure::window(emu::Cycle end, double picojoules, double largest_router_pj) {
  batches_of_window(end, [&](Batch& batch, double part) {
    batch.energy_pj += picojoules * part;
    batch.window_pj = std::max(batch.window_pj, picojoules);
    batch.router_window_pj = std::max(batch.router_window_pj, largest_router_pj);
  });
}

void Measure::hca_window(emu::Cycle end, double picojoules, double largest_hca_pj) {
  batches_of_window(end, [&](Batch& batch, double part) {
    batch.hca_pj += picojoules * part;
    batch.hca_window_pj = std::max(batch.hca_window_pj, largest_hca_pj);
  });
}

std::uint64_t Measure::frames_under_way() const {
  std::uint64_t count = 0;
  for (const Stream& stream : streams_) count += stream.frames.size();
  return count;
}

void Measure::write_tails(emu::JsonWriter& json) const {
  json.field("tails_from_cycle", tails_from_);
  for (std::size_t c = 0; c < emu::kClassCount; ++c) {
    const std::span<const std::uint64_t> words = latencies_[c].words;
    for (const auto& [name, quantile] : {std::pair("p50", 0.5), {"p99", 0.99}, {"p999", 0.999}}) {
      // null: nothing came, which is no latency of 0.
      json.field(fmt::format("{}_{}_cycles", emu::kClassNames[c], name),
                 words[0] > 0 ? emu::histogram_quantile(words, quantile) : std::nan(""));
    }
  }
  const auto by_node = [&](std::string_view name, const std::vector<double>& flits) {
    json.open_array(name);
    for (const double of_one : flits) json.field({}, of_one);
    json.close_array();
  };
  by_node("node_flits", node_flits_);
  by_node("node_offered_flits", node_offered_flits_);
}

void Measure::write(emu::JsonWriter& json) const {
  write_tails(json);
  const auto series = [&](std::string_view name, auto&& value) {
    json.open_array(name);
    for (const Batch& batch : batches_) json.field({}, static_cast<double>(value(batch)));
    json.close_array();
  };
  for (std::size_t c = 0; c < emu::kClassCount; ++c) {
    const auto one = [&](std::string_view field, double ClassBatch::*member) {
      series(fmt::format("{}_{}", emu::kClassNames[c], field),
             [&](const Batch& batch) { return batch.classes[c].*member; });
    };
    one("messages", &ClassBatch::messages);
    one("flits", &ClassBatch::flits);
    one("network_cycles", &ClassBatch::network_cycles);
    one("queue_cycles", &ClassBatch::queue_cycles);
    one("host_cycles", &ClassBatch::host_cycles);
    one("offered_flits", &ClassBatch::offered_flits);
  }
  series("frames", [](const Batch& b) { return b.frames; });
  series("missed", [](const Batch& b) { return b.missed; });
  series("late_ms", [](const Batch& b) { return b.late_ms; });
  series("intervals", [](const Batch& b) { return b.intervals; });
  series("deviation_ms", [](const Batch& b) { return b.deviation_ms; });
  series("deviation_sq", [](const Batch& b) { return b.deviation_sq; });
  series("energy_pj", [](const Batch& b) { return b.energy_pj; });
  series("window_pj", [](const Batch& b) { return b.window_pj; });
  series("router_window_pj", [](const Batch& b) { return b.router_window_pj; });
  series("hca_pj", [](const Batch& b) { return b.hca_pj; });
  series("hca_window_pj", [](const Batch& b) { return b.hca_window_pj; });
}

}  // namespace tools
