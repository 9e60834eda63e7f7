#include "tools/sim/failures.h"

#include <algorithm>
#include <set>
#include <sstream>

#include "emu/base/check.h"

namespace tools {

emu::Result<FailureSpec> parse_failure(std::string_view text) {
  FailureSpec failure;
  std::istringstream words{std::string(text)};
  char colon = 0;
  std::string rest;
  const bool read = static_cast<bool>(words >> failure.link.router >> colon);
  unsigned port = 0;
  const bool all = read && words >> port >> failure.from >> failure.until && !(words >> rest);
  failure.link.port = static_cast<emu::PortId>(port);
  if (!all || colon != ':' || port >= fabric::kRouterPortsMax || !(failure.from >= 0) ||
      !(failure.from < failure.until) || !(failure.until <= 1)) {
    return emu::fail("\"{}\": must be a link and parts of the run such as \"3:4 0.4 0.7\"", text);
  }
  return failure;
}

Failures::Failures(const std::vector<FailureSpec>& specs, emu::Cycle end) {
  const auto at = [&](double part) {
    return static_cast<emu::Cycle>(part * static_cast<double>(end));
  };
  std::set<emu::Cycle> cycles;
  for (const FailureSpec& spec : specs) cycles.insert({at(spec.from), at(spec.until)});
  for (const emu::Cycle cycle : cycles) {
    Change change = {cycle, {}};
    for (const FailureSpec& spec : specs)
      if (at(spec.from) <= cycle && cycle < at(spec.until)) change.down.push_back(spec.link);
    changes_.push_back(std::move(change));
  }
}

emu::Result<void> Failures::check(fabric::Network& network) const {
  if (changes_.size() >= fabric::Network::kRouteVersionsMax) {
    return emu::fail("run.failures: {} changes, at most {}", changes_.size(),
                     fabric::Network::kRouteVersionsMax - 1);
  }
  for (const Change& change : changes_) {
    if (auto down = network.set_down(change.down); !down)
      return emu::fail("run.failures: {}", down.error().message);
  }
  return network.set_down({});
}

emu::Cycle Failures::next() const {
  return done_ < changes_.size() ? changes_[done_].cycle : emu::kNever;
}

void Failures::apply(fabric::Network& network) {
  const auto down = network.set_down(changes_[done_++].down);
  CHECK(down);
}

void Failures::write(emu::JsonWriter& json, emu::Cycle batch_cycles, std::size_t batches) const {
  json.open_array("links_down");
  for (std::size_t b = 0; b < batches; ++b) {
    std::size_t most = 0;
    std::size_t before = 0;  // that are down when the batch begins
    for (const Change& change : changes_) {
      if (change.cycle <= b * batch_cycles) before = change.down.size();
      if (change.cycle > b * batch_cycles && change.cycle < (b + 1) * batch_cycles)
        most = std::max(most, change.down.size());
    }
    json.field({}, static_cast<std::uint64_t>(std::max(most, before)));
  }
  json.close_array();
}

}  // namespace tools
