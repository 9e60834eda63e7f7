#include "tools/sim/flows.h"

#include <fmt/format.h>

#include <bit>
#include <charconv>
#include <sstream>

namespace tools {

namespace {

template <class Number>
bool whole(std::string_view text, Number& value) {
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc{} && stop == text.data() + text.size();
}

// What is measured of flows is named by their label: `a_mb_s` of all with it, `a_least_mb_s` of the
// least of them, `all_mb_s` of all flows.
emu::Result<void> check_label(std::string_view label, std::string_view text) {
  if (label == "all") return emu::fail("\"{}\": must not be named all, as their sum is", text);
  for (const std::string_view word : {"_mean", "_least", "_most"}) {
    if (!label.ends_with(word)) continue;
    return emu::fail("\"{}\": must not be named *{}, as a measure of flows {} is", text, word,
                     label.substr(0, label.size() - word.size()));
  }
  return {};
}

}  // namespace

emu::Result<FlowSpec> parse_flow(std::string_view text) {
  FlowSpec flow;
  std::istringstream words{std::string(text)};
  std::string way;
  std::string rest;
  std::string flits;
  const bool named = static_cast<bool>(words >> flow.label >> way);
  const std::size_t arrow = way.find('>');
  const bool way_read = named && arrow != std::string::npos &&
                        whole(std::string_view(way).substr(0, arrow), flow.source) &&
                        whole(std::string_view(way).substr(arrow + 1), flow.dest);
  if (words >> rest) {
    const auto [stop, error] = std::from_chars(rest.data(), rest.data() + rest.size(), flow.load);
    if (error != std::errc{} || stop != rest.data() + rest.size()) flow.load = 0;
  }
  constexpr std::uint32_t kFlitsMax = 2048;  // as of workload.message_flits
  if (words >> flits && (!whole(flits, flow.message_flits) || flow.message_flits == 0 ||
                         flow.message_flits > kFlitsMax))
    flow.load = 0;
  if (!way_read || flow.source == flow.dest || !(flow.load > 0 && flow.load <= 1) ||
      words >> rest) {
    return emu::fail(
        "\"{}\": must be a flow such as \"name 3>9 0.25\" or, with the flits of a message, \"name "
        "3>9 0.25 4\"",
        text);
  }
  if (auto label = check_label(flow.label, text); !label) return std::unexpected(label.error());
  return flow;
}

FlowSource::FlowSource(const Setting& setting, const FlowSpec& spec, std::uint16_t flow,
                       std::uint32_t nth, std::uint64_t seed) {
  const emu::LaneMask lanes =
      setting.lanes[static_cast<std::size_t>(emu::TrafficClass::best_effort)];
  nth %= static_cast<std::uint32_t>(std::popcount(lanes));
  emu::LaneMask left = lanes;
  while (nth-- > 0) left = static_cast<emu::LaneMask>(left & (left - 1));
  message_.stream = kNoStream;
  message_.flow = flow;
  const std::uint32_t flits =
      spec.message_flits > 0 ? spec.message_flits : setting.spec.message_flits;
  message_.flits = static_cast<std::uint16_t>(flits);
  message_.source = spec.source;
  message_.dest = spec.dest;
  message_.vl_in = message_.vl_out = static_cast<emu::Vl>(std::countr_zero(left));
  gap_ = flits / spec.load;
  emu::Prng prng(seed);
  next_ = gap_ * prng.uniform();
}

emu::Cycle FlowSource::feed(emu::Cycle horizon, std::vector<FlitMessage>& out) {
  for (; next_ < static_cast<double>(horizon); next_ += gap_) {
    message_.created = static_cast<emu::Cycle>(next_);
    out.push_back(message_);
  }
  return static_cast<emu::Cycle>(next_);
}

FlowMeter::FlowMeter(const std::vector<FlowSpec>& flows, emu::Cycle batch_cycles,
                     std::size_t batches)
    : batch_cycles_(batch_cycles), batches_(batches), flits_(flows.size() * batches) {
  for (const FlowSpec& flow : flows) labels_.push_back(flow.label);
}

void FlowMeter::delivered(const FlitMessage& message, emu::Cycle tail) {
  const std::size_t batch = tail / batch_cycles_;
  if (message.flow == 0 || batch >= batches_) return;
  flits_[(message.flow - 1U) * batches_ + batch] += message.flits;
}

void FlowMeter::write(emu::JsonWriter& json) const {
  json.open_array("flow_labels");
  for (const std::string& label : labels_) json.field({}, label);
  json.close_array();
  json.open_array("flow_flits");
  for (std::size_t flow = 0; flow < labels_.size(); ++flow) {
    json.open_array();
    for (std::size_t b = 0; b < batches_; ++b) json.field({}, flits_[flow * batches_ + b]);
    json.close_array();
  }
  json.close_array();
}

}  // namespace tools
