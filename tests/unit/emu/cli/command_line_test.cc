#include "emu/cli/command_line.h"

#include <gtest/gtest.h>

#include <initializer_list>
#include <iostream>
#include <sstream>

#include "emu/base/exit_code.h"

namespace {

using emu::CommandLine;

// What a program says while this lives.
class Said {
 public:
  Said() : out_before_(std::cout.rdbuf(out_.rdbuf())), err_before_(std::cerr.rdbuf(err_.rdbuf())) {}
  ~Said() {
    std::cout.rdbuf(out_before_);
    std::cerr.rdbuf(err_before_);
  }
  Said(const Said&) = delete;
  Said& operator=(const Said&) = delete;

  std::string out() const { return out_.str(); }
  std::string err() const { return err_.str(); }

 private:
  std::ostringstream out_;
  std::ostringstream err_;
  std::streambuf* out_before_;
  std::streambuf* err_before_;
};

std::optional<int> parse(CommandLine& line, std::initializer_list<const char*> words) {
  std::vector<const char*> argv{"program"};
  argv.insert(argv.end(), words);
  return line.parse(static_cast<int>(argv.size()), argv.data());
}

// Every kind of variable, and every restriction.
struct Program {
  std::string text = "before";
  std::string mode = "slow";
  std::string place;
  double seconds = 20;
  double share = 0.5;
  double load = 0.1;
  int count = -1;
  std::int64_t rate = -1;
  std::uint16_t port = 1;
  std::uint32_t slack = 500;
  std::uint64_t seed = 1;
  std::vector<std::string> nodes;
  std::vector<std::string> streams;
  std::vector<int> sides;
  std::string json;
  bool quiet = false;
  CommandLine line{"What it does.", "program"};
  CommandLine::Option json_option = define();

  CommandLine::Option define() {
    line.option("PLACE", place, "where").required();
    line.option("-t,--text", text, "any");
    line.option("--mode", mode, "which").one_of({"slow", "fast"});
    line.option("--seconds", seconds, "of it").range(0.1, 3600.0).show_default();
    line.option("--share", share, "part").range(0, 1);
    line.option("--load", load, "any");
    line.option("--count", count, "how many").range(2, 8);
    line.option("--rate", rate, "in bits/s");
    line.option("--port", port, "to listen on");
    line.option("--slack", slack, "in us").show_default();
    line.option("--seed", seed, "of choices");
    line.option("--nodes", nodes, "who").list();
    line.option("--stream", streams, "what");
    line.option("--sides", sides, "of a grid").list();
    line.flag("--quiet", quiet, "say nothing");
    return line.option("--json", json, "a file or stdout").optional_value();
  }
};

TEST(CommandLine, WhatIsNotGivenKeepsItsValue) {
  Program p;
  EXPECT_EQ(parse(p.line, {"here"}), std::nullopt);
  EXPECT_EQ(p.place, "here");
  EXPECT_EQ(p.text, "before");
  EXPECT_EQ(p.mode, "slow");
  EXPECT_EQ(p.seconds, 20);
  EXPECT_EQ(p.count, -1);
  EXPECT_EQ(p.rate, -1);
  EXPECT_EQ(p.port, 1);
  EXPECT_EQ(p.slack, 500U);
  EXPECT_EQ(p.seed, 1U);
  EXPECT_TRUE(p.nodes.empty() && p.streams.empty() && p.sides.empty());
  EXPECT_FALSE(p.quiet);
  EXPECT_FALSE(p.json_option.given());
}

TEST(CommandLine, EveryKindOfVariableIsRead) {
  Program p;
  ASSERT_EQ(parse(p.line, {"here",        "-t",
                           "a b",         "--mode",
                           "fast",        "--seconds",
                           "0.1",         "--count",
                           "8",           "--rate",
                           "-9000000000", "--port",
                           "65535",       "--slack=4294967295",
                           "--seed",      "18446744073709551615",
                           "--nodes",     "n0,n1",
                           "--stream",    "a,b",
                           "--stream",    "c",
                           "--sides",     "4,-2",
                           "--quiet"}),
            std::nullopt);
  EXPECT_EQ(p.text, "a b");
  EXPECT_EQ(p.mode, "fast");
  EXPECT_EQ(p.seconds, 0.1);
  EXPECT_EQ(p.count, 8);
  EXPECT_EQ(p.rate, -9'000'000'000);
  EXPECT_EQ(p.port, 65535);
  EXPECT_EQ(p.slack, 4'294'967'295U);
  EXPECT_EQ(p.seed, 18'446'744'073'709'551'615U);
  EXPECT_EQ(p.nodes, (std::vector<std::string>{"n0", "n1"}));
  EXPECT_EQ(p.streams, (std::vector<std::string>{"a,b", "c"}));
  EXPECT_EQ(p.sides, (std::vector<int>{4, -2}));
  EXPECT_TRUE(p.quiet);
}

TEST(CommandLine, AWrongLineIsNamedOnStderrAndExitsWithTwo) {
  const struct {
    std::initializer_list<const char*> words;
    const char* says;
  } kWrong[] = {
      {{}, "PLACE is required"},
      {{"here", "there"}, "The following argument was not expected: there"},
      {{"here", "--frob"}, "The following argument was not expected: --frob"},
      {{"here", "--text"}, "--text: 1 required TEXT missing"},
      {{"here", "--mode", "quick"}, "--mode: quick not in {slow,fast}"},
      {{"here", "--seconds", "0"}, "--seconds: Value 0 not in range 0.100000 to 3600.000000"},
      {{"here", "--seconds", "1s"}, "--seconds: Value 1s not in range 0.100000 to 3600.000000"},
      {{"here", "--seconds", "nan"}, "--seconds: Value nan is no number"},
      {{"here", "--load", "NaN"}, "--load: Value NaN is no number"},
      {{"here", "--share", "0.5"}, "--share: Value 0.5 not in range 0 to 1"},
      {{"here", "--count", "9"}, "--count: Value 9 not in range 2 to 8"},
      {{"here", "--rate", "many"}, "Could not convert: --rate = many"},
      {{"here", "--port", "65536"}, "Could not convert: --port = 65536"},
      {{"here", "--slack", "-1"}, "Could not convert: --slack = -1"},
      {{"here", "--seed", "-1"}, "--seed: Value -1 is negative"},
      {{"here", "--sides", "4,x"}, "Could not convert: --sides = 4,x"},
      {{"here", "--quiet=perhaps"}, "Could not convert: --quiet = perhaps"},
  };
  for (const auto& wrong : kWrong) {
    Program p;
    const Said said;
    EXPECT_EQ(parse(p.line, wrong.words), emu::kExitBadInput) << wrong.says;
    EXPECT_EQ(said.out(), "");
    EXPECT_EQ(said.err(), std::string(wrong.says) + "\nRun with --help for more information.\n");
  }
}

TEST(CommandLine, AnOptionalValueMayBeLeftOut) {
  Program bare;
  EXPECT_EQ(parse(bare.line, {"here", "--json"}), std::nullopt);
  EXPECT_TRUE(bare.json_option.given());
  EXPECT_EQ(bare.json, "");
  Program filled;
  EXPECT_EQ(parse(filled.line, {"here", "--json", "file"}), std::nullopt);
  EXPECT_TRUE(filled.json_option.given());
  EXPECT_EQ(filled.json, "file");
}

TEST(CommandLine, HelpHasEveryOptionWithItsLimitsAndDefaults) {
  Program p;
  const Said said;
  EXPECT_EQ(parse(p.line, {"--help"}), 0);
  EXPECT_EQ(said.err(), "");
  EXPECT_EQ(said.out(), R"(What it does.
Usage: program [OPTIONS] PLACE

Positionals:
  PLACE TEXT REQUIRED         where

Options:
  -h,--help                   Print this help message and exit
  -t,--text TEXT              any
  --mode TEXT:{slow,fast}     which
  --seconds FLOAT:FLOAT in [0.1 - 3600]=20
                              of it
  --share FLOAT:INT in [0 - 1]
                              part
  --load FLOAT                any
  --count INT:INT in [2 - 8]  how many
  --rate INT                  in bits/s
  --port UINT                 to listen on
  --slack UINT=500            in us
  --seed UINT                 of choices
  --nodes TEXT ...            who
  --stream TEXT ...           what
  --sides INT ...             of a grid
  --quiet                     say nothing
  --json TEXT                 a file or stdout

)");
}

}  // namespace
