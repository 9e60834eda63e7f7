#include "tools/sim/point.h"

#include <toml++/toml.h>

#include <algorithm>
#include <span>
#include <sstream>

#include "emu/config/fields.h"
#include "tools/sim/flows.h"

namespace tools {

namespace {

std::string range_of(double low, double high) {
  std::ostringstream out;
  out << " from " << low << " to " << high;
  return out.str();
}
std::string list_of(std::span<const std::string_view> names) {
  std::ostringstream out;
  for (const std::string_view name : names) out << ' ' << name;
  return out.str();
}

// Takes keys out of a table one by one; what is left at the end is unknown.
class Section {
 public:
  Section(toml::table& document, std::string_view name) : name_(name) {
    if (const auto* table = document[name].as_table()) {
      table_ = *table;
    } else if (document.contains(name)) {
      note("*", "must be one table");
    }
    document.erase(name);
  }
  void number(std::string_view key, double& field, double low, double high) {
    const auto node = table_[key];
    if (!node) return;
    const auto value = node.value<double>();
    if (!value || !(*value >= low && *value <= high)) {
      note(key, "must be a number" + range_of(low, high));
    } else {
      field = *value;
    }
    table_.erase(key);
  }
  template <class T>
  void whole(std::string_view key, T& field, double low, double high) {
    auto value = static_cast<double>(field);
    if (table_[key] && !table_[key].is_integer()) note(key, "must be a whole number");
    number(key, value, low, high);
    field = static_cast<T>(value);
  }
  void boolean(std::string_view key, bool& field) {
    const auto node = table_[key];
    if (!node) return;
    if (!node.is_boolean()) note(key, "must be true or false");
    field = node.value_or(field);
    table_.erase(key);
  }
  template <class T>
  void name(std::string_view key, T& field, std::span<const std::string_view> names) {
    const auto node = table_[key];
    if (!node) return;
    const auto text = node.value_or(std::string());
    const auto found = std::ranges::find(names, text);
    if (found == names.end()) {
      note(key, "must be one of" + list_of(names));
    } else {
      field = static_cast<T>(found - names.begin());
    }
    table_.erase(key);
  }
  bool numbers(std::string_view key, std::vector<double>& field, double low, double high,
               bool whole = false) {
    if (!table_[key]) return false;
    const std::string must =
        fmt::format("must be a list of {}numbers{}", whole ? "whole " : "", range_of(low, high));
    field.clear();
    for (const auto& item : list(key, must)) {
      const auto value = item.value<double>();
      const bool fits = value && *value >= low && *value <= high;
      if (!fits || (whole && !item.is_integer())) note(key, must);
      field.push_back(value.value_or(low));
    }
    return true;
  }
  std::vector<std::string> texts(std::string_view key) {
    std::vector<std::string> found;
    constexpr std::string_view kMust = "must be a list of texts";
    for (const auto& item : list(key, kMust)) {
      if (!item.is_string()) note(key, kMust);
      found.push_back(item.value_or(std::string()));
    }
    return found;
  }
  emu::Result<void> end() const {
    if (!error_.empty()) return emu::fail("{}.{}", name_, error_);
    if (!table_.empty()) {
      return emu::fail("{}.{}: unknown key", name_, table_.begin()->first.str());
    }
    return {};
  }

  bool good() const { return error_.empty(); }

 private:
  void note(std::string_view key, std::string_view what) {
    if (error_.empty()) error_ = fmt::format("{}: {}", key, what);
  }
  // Takes the key out; empty if it is not there, or no list, which is noted.
  toml::array list(std::string_view key, std::string_view must) {
    toml::array found;
    if (const auto* array = table_[key].as_array()) {
      found = *array;
    } else if (table_[key]) {
      note(key, must);
    }
    table_.erase(key);
    return found;
  }
  std::string name_;
  toml::table table_;
  std::string error_;
};

emu::Result<void> read_workload(toml::table& document, WorkloadSpec& w) {
  Section section(document, "workload");
  section.number("load", w.load, 0, 2);
  section.number("real_time_share", w.real_time_share, 0, 1);
  section.numbers("phases", w.phases, 0, 1);
  section.name("streams", w.streams, kStreamNames);
  section.name("placement", w.placement, kPlacementNames);
  section.number("stream_kbps", w.stream_kbps, 1, 1e6);
  section.number("frame_sd", w.frame_sd, 0, kFrameSdMost);
  section.number("frame_ms", w.frame_ms, 0.01, 1000);
  section.name("regulator", w.regulator, kRegulatorNames);
  section.whole("message_flits", w.message_flits, 1, 2048);
  section.whole("header_flits", w.header_flits, 0, 16);
  section.boolean("load_counts_headers", w.load_counts_headers);
  section.number("on_ms", w.on_ms, 0.001, 1000);
  section.number("off_ms", w.off_ms, 0, 1000);
  section.name("arrivals", w.arrivals, kArrivalNames);
  section.name("pattern", w.pattern, kPatternNames);
  section.number("hot_share", w.hot_share, 0, 1);
  section.number("pareto_shape", w.pareto_shape, 1.01, 3);
  section.number("pulse_load", w.pulse_load, 0, 2);
  section.whole("pulse_cycles", w.pulse_cycles, 0, 1e12);
  section.whole("flit_payload_bytes", w.flit_payload_bytes, 0, 64);
  section.whole("circuit_attempts", w.circuit_attempts, 0, 60'000);
  const std::vector<std::string> flows = section.texts("flows");
  if (!section.good()) return section.end();
  for (const std::string& text : flows) {
    auto flow = parse_flow(text);
    if (!flow) return emu::fail("workload.flows: {}", flow.error().message);
    w.flows.push_back(*std::move(flow));
  }
  section.number("control_per_frame", w.control_per_frame, 0, 1e6);
  section.whole("control_flits", w.control_flits, 1, 2048);
  return section.end();
}

emu::Result<void> read_run(toml::table& document, RunSpec& run) {
  Section section(document, "run");
  section.whole("seed", run.seed, 0, 9e15);
  section.whole("batch_cycles", run.batch_cycles, 100, 1e10);
  section.whole("batches", run.batches, 1, 1e6);
  section.boolean("hca", run.hca);
  section.whole("look_cycles", run.look_cycles, 0, 1e6);
  section.name("nic", run.nic, kNicNames);
  section.number("dma_setup_us", run.dma_setup_us, 0, 1000);
  section.number("dma_mbps", run.dma_mbps, 1, 1e6);
  section.number("nic_memory_kb", run.nic_memory_kb, 16, 1e6);
  section.number("receive_us", run.receive_us, 0, 1000);
  const std::vector<std::string> failures = section.texts("failures");
  if (!section.good()) return section.end();
  for (const std::string& text : failures) {
    auto failure = parse_failure(text);
    if (!failure) return emu::fail("run.failures: {}", failure.error().message);
    run.failures.push_back(*failure);
  }
  std::vector<double> lanes;
  if (section.numbers("lanes", lanes, 0, 0xffff, true) && section.good()) {
    if (lanes.size() != run.lanes.size())
      return emu::fail("run.lanes: must be three sets of lanes");
    std::ranges::transform(lanes, run.lanes.begin(),
                           [](double mask) { return static_cast<emu::LaneMask>(mask); });
    run.lanes_given = true;
  }
  return section.end();
}

// Lanes that the cluster has. Control and best effort may share theirs: what that costs small
// messages is an experiment. Real time has its own, unless preemption lets any class be on any.
emu::Result<void> check_lanes(const RunSpec& run, const emu::NetworkConfig& network) {
  using emu::config::print_lanes;
  const emu::LaneMask there = emu::config::lanes_there(network);
  const auto [control, real_time, best_effort] = run.lanes;
  const auto missing = static_cast<emu::LaneMask>((control | real_time | best_effort) & ~there);
  if (missing != 0) {
    return emu::fail("run.lanes: VL{}: must be among {} with network.num_vcs = {}",
                     print_lanes(missing), print_lanes(there), network.num_vcs);
  }
  const auto shared = static_cast<emu::LaneMask>(real_time & (control | best_effort));
  if (shared == 0 || network.router == emu::Router::p) return {};
  return emu::fail("run.lanes: real_time shares VL{}: it must have its own", print_lanes(shared));
}

}  // namespace

bool Point::transient() const {
  return workload.pulse_cycles > 0 || workload.phases.size() > 1 || !run.failures.empty();
}

emu::Result<Point> parse_point(std::string_view text, std::string_view source) {
  toml::table document;
  try {
    document = toml::parse(text, source);
  } catch (const toml::parse_error& error) {
    return emu::fail("{}:{}: {}", source, error.source().begin.line, error.description());
  }
  Point point;
  if (auto read = read_workload(document, point.workload); !read) {
    return emu::fail("{}: {}", source, read.error().message);
  }
  if (auto read = read_run(document, point.run); !read) {
    return emu::fail("{}: {}", source, read.error().message);
  }
  std::ostringstream cluster;
  cluster << document;
  auto config = emu::Config::parse(cluster.str(), source);
  if (!config) return std::unexpected(config.error());
  point.cluster = std::move(*config);
  if (auto lanes = check_lanes(point.run, point.cluster.network); !lanes)
    return emu::fail("{}: {}", source, lanes.error().message);
  const auto nodes = static_cast<int>(point.cluster.nodes.size());
  if (!Pattern::fits(point.workload.pattern, nodes)) {
    return emu::fail("{}: workload.pattern: does not fit {} nodes", source, nodes);
  }
  for (const FlowSpec& flow : point.workload.flows) {
    if (std::max(flow.source, flow.dest) >= nodes) {
      return emu::fail("{}: workload.flows: {}>{}: there are {} nodes", source, flow.source,
                       flow.dest, nodes);
    }
  }
  return point;
}

}  // namespace tools
