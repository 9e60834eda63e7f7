// flitnet-point: runs one point of an experiment in virtual time. In: TOML, from a file or standard
// input. Out: one line of JSON.
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>
#include <string_view>

#include "emu/base/complain.h"
#include "emu/cli/command_line.h"
#include "tools/sim/flit_run.h"
#include "tools/sim/point.h"

namespace {

constexpr std::string_view kProcess = "flitnet-point";

int complain(const std::string& message, int code) {
  return emu::complain(kProcess, message, code);
}

}  // namespace

int main(int argc, char** argv) {
  emu::CommandLine line(
      "Runs one point of an experiment in virtual time and prints one line of JSON.");
  std::string path = "-";
  line.option("point", path, "TOML file; -: standard input");
  if (const auto code = line.parse(argc, argv)) return *code;
  std::string text;
  if (path == "-") {
    text.assign(std::istreambuf_iterator<char>(std::cin), {});
  } else {
    std::ifstream file(path);
    if (!file) return complain("cannot read " + path, 2);
    text.assign(std::istreambuf_iterator<char>(file), {});
  }
  auto point = tools::parse_point(text, path == "-" ? "standard input" : path);
  if (!point) return complain(point.error().message, 2);
  auto run = tools::FlitRun::make(*point);
  if (!run) return complain(run.error().message, 2);
  (*run)->play();
  return emu::write_out(kProcess, (*run)->json() + "\n");
}
