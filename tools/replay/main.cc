// flitnet-replay: video streams between nodes, both ways, over verbs. Exit 0: all streams came to
// their end (or were refused by admission), 1: a peer, a queue pair or the device failed, 2: bad
// usage or input.
#include <csignal>
#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include <fmt/core.h>

#include "emu/base/exit_code.h"
#include "emu/cli/command_line.h"
#include "tools/replay/replayer.h"
#include "tools/replay/report.h"
#include "tools/trace/clip.h"

namespace {

volatile int stop_asked = 0;
void ask_stop(int) { stop_asked = 1; }

struct Arguments {
  tools::ReplayOptions replay;
  std::string plan;
  std::vector<std::string> streams;
  std::string json;
  std::string layout;
  std::string unit;
  unsigned sl = 1;
  bool no_admission = false;
};

void add_options(emu::CommandLine& line, Arguments& arguments) {
  auto& replay = arguments.replay;
  line.option("--node", replay.node, "our name in the plan").required();
  line.option("--rendezvous", replay.rendezvous, "folder where the replayers meet").required();
  line.option("--plan", arguments.plan, "file with one stream a line");
  line.option("--stream", arguments.streams,
              "name=s0,clip=FILE|cbr[:BYTES]|vbr:SEED[:BYTES],from=n0,to=n1[,frame=12][,phase_us=0]"
              "[,fps=30|30000/1001]");
  line.flag("--sink", replay.sink, "also take streams that are not in the plan");
  line.option("--seconds", replay.seconds, "length of each stream, emulated time")
      .range(0.0, 1e6)
      .show_default();
  line.option("--begin", replay.begin, "folder where it is said when streams begin (begin.h)");
  line.option("--wait-seconds", replay.wait_seconds, "for peers to come").show_default();
  line.option("--json", arguments.json, "write the result here");
  line.option("--metrics", replay.metrics_run, "run folder for the metrics page");
  line.option("--device", replay.device, "RDMA device (default: the first)");
  line.option("--sl", arguments.sl, "service level of the streams").range(0, 15).show_default();
  line.flag("--no-admission", arguments.no_admission, "do not ask for a reservation");
  line.option("--ahead-ms", replay.send.ahead_ms, "post frames this long before their time")
      .range(1, 400)
      .show_default();
  line.option("--slack-us", replay.send.slack_us,
              "a frame's last packet leaves this long before its deadline")
      .range(0, 20000)
      .show_default();
  line.option("--packet-payload", replay.send.cut.shape.payload_bytes,
              "bytes of a message in one packet of the network")
      .range(4, 4096)
      .show_default();
  line.option("--header-bytes", replay.send.cut.shape.header_bytes,
              "of a packet beside its payload: 26, with a GRH (RoCE) 66")
      .range(26, 128)
      .show_default();
  line.option("--message-packets", replay.send.cut.packets,
              "full packets of one message; larger frames go as several")
      .range(1, 1024)
      .show_default();
  line.option("--flit-bytes", replay.send.cut.shape.flit_bytes, "bytes of a flit")
      .range(1, 64)
      .show_default();
  line.option("--layout", arguments.layout, "layout of text traces: own, asu, tkn, terse")
      .one_of({"own", "asu", "tkn", "terse"});
  line.option("--unit", arguments.unit, "unit of text traces: bits, bytes")
      .one_of({"bits", "bytes"});
}

emu::Result<void> read_streams(Arguments& arguments) {
  auto& streams = arguments.replay.streams;
  if (!arguments.plan.empty()) {
    constexpr std::uint64_t kPlanBytesMax = 1 << 20;
    const auto bytes = tools::read_file(arguments.plan, kPlanBytesMax);
    if (!bytes) return std::unexpected(bytes.error());
    auto plan = tools::parse_plan({reinterpret_cast<const char*>(bytes->data()), bytes->size()},
                                  arguments.plan);
    if (!plan) return std::unexpected(plan.error());
    streams = *std::move(plan);
  }
  for (const std::string& line : arguments.streams) {
    auto stream = tools::parse_stream(line, "--stream");
    if (!stream) return std::unexpected(stream.error());
    streams.push_back(*std::move(stream));
  }
  if (streams.empty() && !arguments.replay.sink) {
    return emu::fail("nothing to do: give --plan, --stream or --sink");
  }
  return tools::check_names(streams);
}

bool write_json(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << text;
  file.close();
  if (!file) tools::say(path + ": cannot write");
  return static_cast<bool>(file);
}

}  // namespace

int main(int argc, char** argv) {
  Arguments arguments;
  emu::CommandLine line("Replays MPEG-2 clips over RDMA with deadlines, and sinks those of others");
  add_options(line, arguments);
  if (const auto code = line.parse(argc, argv)) return *code;
  arguments.replay.send.sl = static_cast<std::uint8_t>(arguments.sl);
  arguments.replay.send.admission = !arguments.no_admission;
  arguments.replay.text = tools::text_options(arguments.layout, arguments.unit);
  if (auto read = read_streams(arguments); !read) {
    tools::say(read.error().message);
    return 2;
  }
  std::signal(SIGTERM, ask_stop);
  std::signal(SIGINT, ask_stop);
  tools::Replayer replayer(std::move(arguments.replay));
  if (auto opened = replayer.open(); !opened) {
    tools::say(opened.error().message);
    return replayer.bad_input() ? 2 : 1;
  }
  const auto ran = replayer.run(&stop_asked);
  if (!ran) tools::say(ran.error().message);
  bool well = ran && replayer.all_well();
  if (!arguments.json.empty()) well = write_json(arguments.json, report_json(replayer)) && well;
  // Not by fmt, which throws when nobody reads any more.
  (void)std::fputs(report_text(replayer).c_str(), stdout);
  well = std::fflush(stdout) == 0 && std::ferror(stdout) == 0 && well;
  if (stop_asked != 0) return emu::kExitInterrupted;
  return well ? 0 : emu::kExitFailed;
}
