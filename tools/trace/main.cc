// flitnet-trace: a clip or a text trace in, its frame-size trace out. Exit 0, 1 (cannot write), 2
// (the file is no good or the usage is wrong).
#include <fstream>
#include <string>
#include <string_view>

#include "emu/base/complain.h"
#include "emu/cli/command_line.h"
#include "tools/trace/any.h"
#include "tools/trace/text.h"

namespace {

struct Options {
  std::string input;
  std::string output;
  bool json = false;
  tools::TextOptions text;
};

constexpr std::string_view kProcess = "flitnet-trace";

int complain(const std::string& message, int code) {
  return emu::complain(kProcess, message, code);
}

int write_out(const std::string& path, const std::string& text) {
  if (path.empty()) return emu::write_out(kProcess, text);
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << text;
  file.close();
  if (file) return 0;
  return complain(path + ": cannot write", 1);
}

int run(const Options& options) {
  auto clip = tools::read_any(options.input, options.text);
  if (!clip) return complain(clip.error().message, 2);
  return write_out(options.output,
                   options.json ? tools::write_trace_json(*clip) : tools::write_trace(*clip));
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  std::string layout;
  std::string unit;
  emu::CommandLine line(
      "Frame-size trace of an MPEG-2 clip (.mpg .ts .m2v) or of a text trace (.trace .dat .txt)");
  line.option("CLIP", options.input, "clip or text trace").required();
  line.option("-o,--output", options.output, "write here instead of the standard output");
  line.flag("--json", options.json, "as JSON, with the offset of every frame");
  line.option("--layout", layout, "layout of a text trace: own, asu, tkn or terse")
      .one_of({"own", "asu", "tkn", "terse"});
  line.option("--unit", unit, "sizes of a text trace are bits or bytes").one_of({"bits", "bytes"});
  if (const auto code = line.parse(argc, argv)) return *code;
  options.text = tools::text_options(layout, unit);
  return run(options);
}
