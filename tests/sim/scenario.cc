#include "tests/sim/scenario.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "emu/base/prng.h"
#include "tools/trace/text.h"

namespace sim {

namespace {

// The clips that stand for the seven sequences of MW table III (traces/README.md).
constexpr std::array kClips = {"t1_bikes", "t2_city", "t3_cockatoo", "t4_cockatoo",
                               "t5_bikes", "t6_city", "t7_city"};
constexpr std::uint32_t kFrameUs = 33'333;

// A frame is one message here: the credits of a connection are enough for its largest.
tools::FrameCut cut_of(const emu::Config& config) {
  const std::uint32_t flit_bytes = config.network.flit_bits / 8;
  return {{(config.network.packet_size * flit_bytes - 28) & ~3u, 26, flit_bytes}, 1u << 16};
}

emu::Result<std::size_t> add_clip(const emu::Config& config, Scenario& scenario,
                                  const std::string& trace) {
  for (std::size_t i = 0; i < scenario.clips.size(); ++i) {
    if (scenario.clips[i].name == trace) return i;
  }
  auto clip = tools::read_trace(trace);
  if (!clip) return std::unexpected(clip.error());
  if (auto filled = tools::fill_stream(*clip); !filled) return std::unexpected(filled.error());
  clip->name = trace;
  scenario.rates.push_back(tools::rate_of(*clip, {}, cut_of(config)));
  scenario.clips.push_back(std::move(*clip));
  return scenario.clips.size() - 1;
}

// Clips, each sent once by every node, whose rates together come closest to the target.
std::vector<std::size_t> choose_rounds(const Scenario& scenario, double target_bps,
                                       emu::Prng& prng) {
  double whole = 0;
  for (const auto& rate : scenario.rates) whole += static_cast<double>(rate.mean_bps);
  std::vector<std::size_t> rounds;
  double rest = target_bps;
  for (; rest >= whole; rest -= whole) {
    for (std::size_t i = 0; i < scenario.rates.size(); ++i) rounds.push_back(i);
  }
  double best = rest;
  std::uint32_t best_subset = 0;
  for (std::uint32_t subset = 0; subset < 1u << scenario.rates.size(); ++subset) {
    double total = 0;
    for (std::size_t i = 0; i < scenario.rates.size(); ++i) {
      if ((subset >> i & 1) != 0) total += static_cast<double>(scenario.rates[i].mean_bps);
    }
    if (std::abs(rest - total) < best) {
      best = std::abs(rest - total);
      best_subset = subset;
    }
  }
  for (std::size_t i = 0; i < scenario.rates.size(); ++i) {
    if ((best_subset >> i & 1) != 0) rounds.push_back(i);
  }
  for (std::size_t i = rounds.size(); i > 1; --i) {
    std::swap(rounds[i - 1], rounds[prng.below(static_cast<std::uint32_t>(i))]);
  }
  return rounds;
}

}  // namespace

emu::Result<Scenario> make_scenario(const emu::Config& config, const std::string& trace_dir,
                                    const LoadOptions& load, std::uint64_t seed) {
  Scenario scenario;
  scenario.seed = seed;
  for (const char* name : kClips) {
    auto added = add_clip(config, scenario, trace_dir + "/" + name + ".trace");
    if (!added) return std::unexpected(added.error());
  }
  emu::Prng prng(seed);
  const auto link_bps = static_cast<double>(config.network.link_bps());
  const double share = load.overload ? kOverloadShare : load.load * load.real_time_share;
  const auto nodes = static_cast<std::uint32_t>(config.nodes.size());
  const std::vector<std::size_t> rounds = choose_rounds(scenario, share * link_bps, prng);
  for (std::size_t turn = 0; turn < rounds.size(); ++turn) {
    const std::size_t clip = rounds[turn];
    const auto shift = static_cast<std::uint32_t>(1 + turn % (nodes - 1));
    for (std::uint32_t n = 0; n < nodes; ++n) {
      tools::StreamPlan plan;
      plan.name = fmt::format("s{:03}-{}", scenario.streams.size(), kClips[clip]);
      plan.clip = scenario.clips[clip].name;
      plan.from = config.nodes[n].name;
      plan.to = config.nodes[(n + shift) % nodes].name;
      plan.frame = prng.below(static_cast<std::uint32_t>(scenario.clips[clip].frames.size()));
      plan.phase_us = prng.below(kFrameUs);
      scenario.streams.push_back(plan);
      scenario.clip_of_stream.push_back(clip);
    }
  }
  scenario.best_effort_bps =
      static_cast<std::uint64_t>(load.load * (1 - load.real_time_share) * link_bps);
  return scenario;
}

emu::Result<Scenario> read_scenario(const emu::Config& config, const std::string& plan_path) {
  std::ifstream file(plan_path);
  if (!file) return emu::fail("cannot read plan {}", plan_path);
  std::stringstream text;
  text << file.rdbuf();
  auto streams = tools::parse_plan(text.str(), plan_path);
  if (!streams) return std::unexpected(streams.error());
  Scenario scenario;
  for (const tools::StreamPlan& plan : *streams) {
    if (config.node_index(plan.from) < 0 || config.node_index(plan.to) < 0) {
      return emu::fail("{}: stream {}: no node {} or {}", plan_path, plan.name, plan.from, plan.to);
    }
    const auto trace = std::filesystem::path(plan.clip).replace_extension(".trace").string();
    auto clip = add_clip(config, scenario, trace);
    if (!clip) return std::unexpected(clip.error());
    scenario.streams.push_back(plan);
    scenario.clip_of_stream.push_back(*clip);
  }
  return scenario;
}

}  // namespace sim
