// flitnet-point: runs one point of an experiment in virtual time. In: TOML, from a file or standard
// input. Out: one line of JSON.
#include <cstdio>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>

#include "emu/cli/command_line.h"
#include "tools/sim/flit_run.h"
#include "tools/sim/point.h"

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
    if (!file) {
      fmt::print(stderr, "flitnet-point: cannot read {}\n", path);
      return 2;
    }
    text.assign(std::istreambuf_iterator<char>(file), {});
  }
  auto point = tools::parse_point(text, path == "-" ? "standard input" : path);
  if (!point) {
    fmt::print(stderr, "flitnet-point: {}\n", point.error().message);
    return 2;
  }
  auto run = tools::FlitRun::make(*point);
  if (!run) {
    fmt::print(stderr, "flitnet-point: {}\n", run.error().message);
    return 2;
  }
  (*run)->play();
  fmt::print("{}\n", (*run)->json());
  return 0;
}
