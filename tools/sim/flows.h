// Traffic of named flows, each from one node to one other at a rate of its own: what GigaNet's
// experiments are made of. In: "label 3>9 0.25". Out: messages evenly spaced, at what rate they
// were delivered is counted by flow.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "emu/base/json_line.h"
#include "emu/base/prng.h"
#include "emu/base/result.h"
#include "tools/sim/workload.h"

namespace tools {

// "label source>dest", then the load as a part of the link (else all of it), then the flits of its
// messages (else those of the workload).
emu::Result<FlowSpec> parse_flow(std::string_view text);

class FlowSource : public Source {
 public:
  // `flow` counts from 1. `nth` of the flows of its node: flows of a node have lanes of their own.
  FlowSource(const Setting& setting, const FlowSpec& spec, std::uint16_t flow, std::uint32_t nth,
             std::uint64_t seed);
  emu::Cycle feed(emu::Cycle horizon, std::vector<FlitMessage>& out) override;

 private:
  FlitMessage message_;
  double gap_ = 0;  // cycles
  double next_ = 0;
};

// Flits delivered of each flow, batch by batch.
class FlowMeter {
 public:
  FlowMeter(const std::vector<FlowSpec>& flows, emu::Cycle batch_cycles, std::size_t batches);
  void delivered(const FlitMessage& message, emu::Cycle tail);
  void write(emu::JsonWriter& json) const;

 private:
  std::vector<std::string> labels_;
  emu::Cycle batch_cycles_;
  std::size_t batches_;
  std::vector<double> flits_;  // [flow * batches + batch]
};

}  // namespace tools
