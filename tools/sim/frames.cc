#include "tools/sim/frames.h"

#include <algorithm>
#include <cmath>

#include "tools/sim/draw.h"

namespace tools {

namespace {

// I B B P B B P B B P B B: N = 12, M = 3, in the order in which they are sent.
constexpr std::string_view kGop = "IBBPBBPBBPBB";

}  // namespace

FrameSource::FrameSource(const Setting& setting, const StreamShape& shape, FrameBook& book,
                         std::uint64_t seed)
    : setting_(setting),
      shape_(shape),
      book_(book),
      prng_(seed),
      frame_cycles_(setting.spec.frame_ms * 1e9 / static_cast<double>(setting.time.cycle_ps)),
      starts_(static_cast<double>(shape.begin)) {
  begin_frame();
}

double FrameSource::draw_frame_bits() {
  double mean = shape_.frame_bits;
  if (shape_.sequence >= 0) {
    const Mpeg2Sequence& sequence = mpeg2_sequences()[static_cast<std::size_t>(shape_.sequence)];
    const char picture = kGop[(shape_.picture + frame_) % kGop.size()];
    mean = 1000 * (picture == 'I'   ? sequence.i_kbit
                   : picture == 'P' ? sequence.p_kbit
                                    : sequence.b_kbit);
  }
  if (setting_.spec.streams == StreamKind::cbr) return mean;
  // A frame has at least one byte; five deviations below the mean are one in 3 million.
  return std::max(8.0, draw_normal(prng_, mean, mean * setting_.spec.frame_sd));
}

void FrameSource::begin_frame() {
  const WorkloadSpec& spec = setting_.spec;
  const std::uint32_t payload = spec.message_flits - spec.header_flits;
  const auto flits = static_cast<std::uint32_t>(
      std::ceil(draw_frame_bits() / static_cast<double>(setting_.flit_bits)));
  messages_ = (flits + payload - 1) / payload;
  last_flits_ = flits - (messages_ - 1) * payload + spec.header_flits;
  sent_ = 0;
  interval_ = frame_cycles_ / messages_;
  vtick_ = vtick_of(interval_ / spec.message_flits);
}

emu::Cycle FrameSource::feed(emu::Cycle horizon, std::vector<FlitMessage>& out) {
  for (;;) {
    const double part = setting_.spec.regulator == Regulator::end ? sent_ + 1.0 : sent_;
    const auto at = static_cast<emu::Cycle>(starts_ + interval_ * part);
    if (sent_ == 0 && at >= shape_.end) return emu::kNever;
    if (at >= horizon) return at;
    if (sent_ == 0) book_.frame_begins(shape_.number, frame_, messages_);
    const bool last = sent_ + 1 == messages_;
    out.push_back(
        {.created = at,
         .stream = shape_.number,
         .frame = frame_,
         .flits = static_cast<std::uint16_t>(last ? last_flits_ : setting_.spec.message_flits),
         .source = shape_.source,
         .dest = shape_.dest,
         .vl_in = shape_.vl_in,
         .vl_out = shape_.vl_out,
         .traffic_class = emu::TrafficClass::real_time,
         .vtick = vtick_});
    if (++sent_ < messages_) continue;
    starts_ += frame_cycles_;
    ++frame_;
    begin_frame();
  }
}

}  // namespace tools
