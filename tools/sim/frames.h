// A video stream as messages: one frame every frame time, cut into messages of a fixed length that
// leave evenly spaced (MW section IV-B, the input regulator), each with the Vtick of its frame.
#pragma once

#include "tools/sim/workload.h"

namespace tools {

struct StreamShape {
  std::uint32_t number = 0;
  emu::NodeId source = 0;
  emu::NodeId dest = 0;
  emu::Vl vl_in = 0;
  emu::Vl vl_out = 0;
  int sequence = -1;          // of MW table III; -1: synthetic
  double frame_bits = 0;      // synthetic: mean
  emu::Cycle begin = 0;       // first frame; streams of later phases begin later
  emu::Cycle end = 0;         // no frame begins from here on
  std::uint32_t picture = 0;  // place in the GOP of the first frame
};

class FrameSource : public Source {
 public:
  FrameSource(const Setting& setting, const StreamShape& shape, FrameBook& book,
              std::uint64_t seed);
  emu::Cycle feed(emu::Cycle horizon, std::vector<FlitMessage>& out) override;

 private:
  void begin_frame();
  double draw_frame_bits();

  const Setting& setting_;
  StreamShape shape_;
  FrameBook& book_;
  emu::Prng prng_;
  double frame_cycles_;
  std::uint32_t frame_ = 0;
  // Of the frame that is being sent.
  double starts_ = 0;
  double interval_ = 0;
  std::uint32_t messages_ = 0;
  std::uint32_t sent_ = 0;
  std::uint32_t last_flits_ = 0;
  emu::Vtick vtick_ = 0;
};

}  // namespace tools
