// flitnet-capture: packets of a capture ring into a pcap file.
#include <fmt/core.h>
#include <signal.h>

#include <atomic>
#include <cstdio>
#include <string>

#include "emu/base/complain.h"
#include "emu/cli/command_line.h"
#include "tools/capture/drain.h"

namespace {

std::atomic<bool> stop{false};
static_assert(std::atomic<bool>::is_always_lock_free);
void on_signal(int) { stop.store(true, std::memory_order_relaxed); }

}  // namespace

int main(int argc, char** argv) {
  emu::CommandLine line("Writes packets that cross a flitnet fabric as pcap.", "flitnet-capture");
  std::string ring_path;
  tools::DrainOptions options;
  line.option("--ring", ring_path, "the ring that fabricd made").required();
  line.option("--write", options.write, "file, or - for stdout").required();
  line.option("--count", options.count, "packets; 0: no limit");
  line.option("--seconds", options.seconds, "emulated, from the first packet on; 0: no limit")
      .range(0.0, 86400.0);
  if (const auto code = line.parse(argc, argv)) return *code;
  struct sigaction act {};
  act.sa_handler = on_signal;
  ::sigaction(SIGINT, &act, nullptr);
  ::sigaction(SIGTERM, &act, nullptr);
  act.sa_handler = SIG_IGN;  // a pipe that is closed is an error of the write
  ::sigaction(SIGPIPE, &act, nullptr);
  auto ring = emu::CaptureReader::open(ring_path);
  if (!ring) return emu::complain("flitnet-capture", ring.error().message, 1);
  const auto count = tools::drain(*ring, options, stop);
  if (!count) return emu::complain("flitnet-capture", count.error().message, 1);
  const auto said = fmt::format("{} packets captured, {} left out because this reader was late\n",
                                *count, ring->left_out());
  (void)std::fputs(said.c_str(), stderr);
  return 0;
}
