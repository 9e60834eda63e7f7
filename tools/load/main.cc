// flitnet-load: best-effort, control and on-off messages between nodes, and CBR and VBR streams by
// the replayer's means. Exit 0: all came to its end, 1: a peer or the device failed, 2: bad usage.
#include <algorithm>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <ranges>
#include <string>
#include <vector>

#include <fmt/core.h>

#include "emu/base/exit_code.h"
#include "emu/cli/command_line.h"
#include "tools/load/generator.h"
#include "tools/load/kinds.h"
#include "tools/replay/replayer.h"
#include "tools/replay/report.h"

namespace {

constexpr int kFlitsMax = 1088;  // the longest packet, in the smallest flits

volatile int stop_asked = 0;
void ask_stop(int) { stop_asked = 1; }

struct Arguments {
  tools::LoadOptions load;
  tools::KindOptions kinds;
  std::vector<std::string> words;
  std::string rate;
  std::string json;
  std::vector<std::string> profiles;
  std::string law;
  std::string hot;
  std::vector<std::string> kinds_to;
  double profile_step_ms = 0;
  double on_ms = 10;
  double off_ms = 10;
};

double parse_share(const std::string& word, std::string& node) {
  const std::size_t equals = word.find('=');
  node = word.substr(0, equals);
  double share = 0;
  const char* end = word.data() + word.size();
  const char* begin = equals == word.npos ? end : word.data() + equals + 1;
  const auto [stop, error] = std::from_chars(begin, end, share);
  return error == std::errc{} && stop == end ? share : -1;
}

void add_options(emu::CommandLine& line, Arguments& arguments) {
  auto& load = arguments.load;
  line.option("KIND", arguments.words,
              "best-effort[=RATE], control[=RATE], on-off[=RATE], cbr[=RATE], vbr[=RATE]")
      .required();
  line.option("--rate", arguments.rate, "bits/s on the link for kinds without one, as 48M");
  line.option("--node", load.node, "our name").required();
  line.option("--rendezvous", load.rendezvous, "folder where the generators meet").required();
  line.option("--to", load.to, "destinations, drawn evenly").list();
  line.option("--kind-to", arguments.kinds_to,
              "KIND=NODE:NODE:...: where one kind goes, nodes of --to; of on-off each NODE is a "
              "connection with ON and OFF times of its own and the kind's rate");
  line.option("--from", load.from, "who will send to us (default: the destinations)").list();
  line.flag("--sink", load.sink, "expect somebody, whoever it is, and send nothing without --to");
  line.option("--seconds", load.seconds, "emulated time").range(0.0, 1e6).show_default();
  line.option("--begin", load.begin, "folder where it is said when to begin (begin.h)");
  line.option("--wait-seconds", load.wait_seconds, "for peers to come").show_default();
  line.option("--json", arguments.json, "write the result here");
  line.option("--metrics", load.metrics_run, "run folder for the metrics page");
  line.option("--device", load.device, "RDMA device (default: the first)");
  line.option("--seed", arguments.kinds.seed, "of all random choices").show_default();
  line.option("--packet-flits", arguments.kinds.packet_flits, "flits of a packet")
      .range(1, kFlitsMax)
      .show_default();
  line.option("--control-flits", arguments.kinds.control_flits, "flits of a control packet")
      .range(1, kFlitsMax)
      .show_default();
  line.option("--flit-bytes", arguments.kinds.flit_bytes, "bytes of a flit")
      .range(4, 64)
      .show_default();
  line.option("--header-bytes", arguments.kinds.header_bytes,
              "of a packet beside its payload: 34, with a GRH (RoCE) 74")
      .range(34, 128)
      .show_default();
  line.option("--arrivals", arguments.law, "of best effort: poisson, on_off, self_similar")
      .one_of({"poisson", "on_off", "self_similar"});
  line.option("--pareto-shape", arguments.kinds.pareto_shape, "of self-similar arrivals")
      .range(1.01, 3.0)
      .show_default();
  line.option("--link-bps", arguments.kinds.link_bps, "pace of messages in a burst")
      .range(1e3, 1e12)
      .show_default();
  line.option("--hot", arguments.hot, "NODE=SHARE: of best effort this part goes to one node");
  line.option("--profile", arguments.profiles,
              "KIND=FACTOR,...: of its rate, each for a step, and again from the first");
  line.option("--profile-step-ms", arguments.profile_step_ms, "emulated length of a step")
      .range(0.001, 1e8);
  line.option("--on-ms", arguments.on_ms, "mean ON time").range(0.001, 1e4);
  line.option("--off-ms", arguments.off_ms, "mean OFF time; 0: always ON").range(0.0, 1e4);
}

emu::Result<void> read_profiles(Arguments& arguments) {
  if (arguments.profiles.empty() != (arguments.profile_step_ms == 0)) {
    return emu::fail("--profile and --profile-step-ms go together");
  }
  for (const std::string& word : arguments.profiles) {
    const auto profile = tools::parse_profile(word);
    if (!profile) return std::unexpected(profile.error());
    auto& flows = arguments.load.flows;
    const auto flow = std::ranges::find(flows, profile->kind, &tools::FlowOptions::kind);
    if (flow == flows.end()) return emu::fail("--profile {}: no such kind is sent", word);
    flow->arrivals.factors = profile->factors;
    flow->arrivals.step_ns = arguments.profile_step_ms * 1e6;
  }
  return {};
}

emu::Result<void> read_kinds_to(Arguments& arguments) {
  auto& load = arguments.load;
  for (const std::string& word : arguments.kinds_to) {
    const std::size_t equals = std::min(word.find('='), word.size());
    const auto flow =
        std::ranges::find(load.flows, word.substr(0, equals), &tools::FlowOptions::kind);
    if (flow == load.flows.end() || equals == word.size()) {
      return emu::fail("--kind-to {}: KIND=NODE:NODE:... of a kind that is sent", word);
    }
    std::vector<std::string>& to = flow->to.emplace();
    for (const auto part : std::views::split(std::string_view(word).substr(equals + 1), ':')) {
      to.emplace_back(std::string_view(part));
      if (std::ranges::count(load.to, to.back()) == 0) {
        return emu::fail("--kind-to {}: {} is not among --to", word, to.back());
      }
    }
  }
  // Whoever is called and asked nothing would wait for our last word.
  for (const std::string& node : load.to) {
    const auto goes = [&node](const tools::FlowOptions& flow) {
      return !flow.to || std::ranges::count(*flow.to, node) > 0;
    };
    if (std::ranges::none_of(load.flows, goes)) {
      return emu::fail("--to {}: no kind goes there by --kind-to", node);
    }
  }
  return {};
}

emu::Result<void> read_hot(Arguments& arguments) {
  if (arguments.hot.empty()) return {};
  std::string node;
  const double share = parse_share(arguments.hot, node);
  auto& flows = arguments.load.flows;
  const auto flow = std::ranges::find(flows, "best-effort", &tools::FlowOptions::kind);
  if (share < 0 || share > 1 || flow == flows.end()) {
    return emu::fail("--hot {}: NODE=SHARE with a share of 0 to 1, for best-effort", arguments.hot);
  }
  flow->hot_node = node;
  flow->hot_share = share;
  return {};
}

emu::Result<void> read_kinds(Arguments& arguments) {
  auto& options = arguments.kinds;
  if (!arguments.rate.empty()) {
    const auto rate = tools::parse_rate(arguments.rate);
    if (!rate) return std::unexpected(rate.error());
    options.default_bps = *rate;
  }
  // Nodes that share a seed must not send at the same times.
  options.seed ^= tools::stream_hash(arguments.load.node);
  const auto law = std::ranges::find(tools::kArrivalNames, arguments.law);
  if (law != std::end(tools::kArrivalNames)) {
    options.law = static_cast<tools::ArrivalLaw>(law - std::begin(tools::kArrivalNames));
  }
  for (const std::string& word : arguments.words) {
    auto flow = tools::parse_kind(word, options);
    if (!flow) return std::unexpected(flow.error());
    flow->arrivals.on_ns = arguments.on_ms * 1e6;
    flow->arrivals.off_ns = arguments.off_ms * 1e6;
    const auto same = [&flow](const tools::FlowOptions& other) { return other.kind == flow->kind; };
    if (std::ranges::any_of(arguments.load.flows, same)) {
      return emu::fail("{} is given twice", flow->kind);
    }
    arguments.load.flows.push_back(*std::move(flow));
  }
  if (auto read = read_profiles(arguments); !read) return read;
  if (auto read = read_hot(arguments); !read) return read;
  if (auto read = read_kinds_to(arguments); !read) return read;
  if (arguments.load.to.empty() && !arguments.load.sink) {
    return emu::fail("nothing to do: give --to or --sink");
  }
  if (std::ranges::count(arguments.load.to, arguments.load.node) > 0) {
    return emu::fail("{} is among its own destinations", arguments.load.node);
  }
  if (arguments.load.from.empty() && !arguments.load.sink) {
    arguments.load.from = arguments.load.to;
  }
  return {};
}

// CBR and VBR are streams of frames with deadlines.
emu::Result<tools::ReplayOptions> replay_of(const Arguments& arguments) {
  const std::string& word = arguments.words.front();
  if (arguments.words.size() != 1) return emu::fail("cbr and vbr go alone, one kind a process");
  const std::size_t equals = word.find('=');
  const std::string kind = word.substr(0, equals);
  double bps = 0;
  const std::string text = equals == std::string::npos ? arguments.rate : word.substr(equals + 1);
  if (!text.empty()) {
    const auto rate = tools::parse_rate(text);
    if (!rate) return std::unexpected(rate.error());
    bps = *rate;
  }
  const auto& load = arguments.load;
  tools::ReplayOptions replay{.node = load.node,
                              .rendezvous = load.rendezvous,
                              .device = load.device,
                              .metrics_run = load.metrics_run,
                              .sink = true,
                              .seconds = load.seconds,
                              .begin = load.begin,
                              .wait_seconds = load.wait_seconds};
  auto streams = tools::synthetic_streams(kind, load.node, load.to, bps, arguments.kinds.seed);
  if (!streams) return std::unexpected(streams.error());
  replay.streams = *std::move(streams);
  return replay;
}

int finish(bool well, const std::string& path, const std::string& json, const std::string& text) {
  if (!path.empty()) {
    std::ofstream file(path, std::ios::binary | std::ios::trunc);
    file << json;
    file.close();
    if (!file) tools::say_load(path + ": cannot write");
    well = well && file;
  }
  // Not by fmt, which throws when nobody reads any more.
  (void)std::fputs(text.c_str(), stdout);
  well = std::fflush(stdout) == 0 && std::ferror(stdout) == 0 && well;
  if (stop_asked != 0) return emu::kExitInterrupted;
  return well ? 0 : emu::kExitFailed;
}

int run_replay(const Arguments& arguments) {
  auto options = replay_of(arguments);
  if (!options) {
    tools::say_load(options.error().message);
    return 2;
  }
  tools::Replayer replayer(*std::move(options));
  if (auto opened = replayer.open(); !opened) {
    tools::say_load(opened.error().message);
    return replayer.bad_input() ? 2 : 1;
  }
  const auto ran = replayer.run(&stop_asked);
  if (!ran) tools::say_load(ran.error().message);
  return finish(ran && replayer.all_well(), arguments.json, tools::report_json(replayer),
                tools::report_text(replayer));
}

int run_load(Arguments& arguments) {
  if (auto read = read_kinds(arguments); !read) {
    tools::say_load(read.error().message);
    return 2;
  }
  tools::Generator generator(std::move(arguments.load));
  if (auto opened = generator.open(); !opened) {
    tools::say_load(opened.error().message);
    return generator.bad_usage() ? emu::kExitBadInput : emu::kExitFailed;
  }
  const auto ran = generator.run(&stop_asked);
  if (!ran) tools::say_load(ran.error().message);
  return finish(ran && generator.all_well(), arguments.json, tools::load_json(generator),
                tools::load_text(generator));
}

}  // namespace

int main(int argc, char** argv) {
  Arguments arguments;
  emu::CommandLine line("Generates load over RDMA between nodes and counts what arrives");
  add_options(line, arguments);
  if (const auto code = line.parse(argc, argv)) return *code;
  std::signal(SIGTERM, ask_stop);
  std::signal(SIGINT, ask_stop);
  const std::string& first = arguments.words.front();
  return tools::is_stream_kind(first.substr(0, first.find('='))) ? run_replay(arguments)
                                                                 : run_load(arguments);
}
