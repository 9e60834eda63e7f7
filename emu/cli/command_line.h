// The command line of a program: options and flags that are variables of the program, the help text
// made of them, and what is said when a command line is wrong. CLI11 does it, in command_line.cc
// alone: its headers cost seven seconds of compilation for each file that includes them, so this
// header has neither them nor templates.
//
//   emu::CommandLine line("What the program does.", "program");
//   line.option("--seconds", seconds, "of traffic").range(0.1, 3600.0).show_default();
//   if (const auto code = line.parse(argc, argv)) return *code;
//
// Names are "--long", "-s,--long", or without dashes for an argument that goes by its place. A name
// that is taken or malformed is a bug of the program and stops it. Variables must outlive parse()
// and keep what they hold where their option is not given.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace emu {

class CommandLine {
 public:
  // An option, to say more about it. Valid as long as its CommandLine.
  class Option {
   public:
    const Option& required() const;
    // Both ends belong to it. Whole numbers as ends are for integers: 0.5 is no value then.
    const Option& range(int least, int most) const;
    const Option& range(double least, double most) const;
    const Option& one_of(const std::vector<std::string>& words) const;
    const Option& list() const;            // "a,b" is two values of a vector
    const Option& show_default() const;    // the help text has what the variable holds now
    const Option& optional_value() const;  // may stand without its value: given, variable empty
    bool given() const;                    // after parse()

   private:
    friend class CommandLine;
    struct Known;
    explicit Option(Known& known) : known_(&known) {}
    Known* known_;
  };

  // The description opens the help text; the name stands in its line of usage (default: argv[0]).
  explicit CommandLine(const std::string& description, const std::string& name = {});
  ~CommandLine();
  CommandLine(const CommandLine&) = delete;
  CommandLine& operator=(const CommandLine&) = delete;

  Option option(const std::string& names, std::string& value, const std::string& help = {});
  Option option(const std::string& names, double& value, const std::string& help = {});
  Option option(const std::string& names, int& value, const std::string& help = {});
  Option option(const std::string& names, std::int64_t& value, const std::string& help = {});
  Option option(const std::string& names, std::uint16_t& value, const std::string& help = {});
  Option option(const std::string& names, std::uint32_t& value, const std::string& help = {});
  Option option(const std::string& names, std::uint64_t& value, const std::string& help = {});
  // Takes all values up to the next option, and may be given several times.
  Option option(const std::string& names, std::vector<std::string>& values,
                const std::string& help = {});
  Option option(const std::string& names, std::vector<int>& values, const std::string& help = {});
  Option flag(const std::string& names, bool& value, const std::string& help = {});

  // Nothing: the variables are set, go on. Else the code to exit with: 0 when help was asked for
  // and is on stdout, kExitBadInput (emu/base/exit_code.h) when stderr has what is wrong.
  std::optional<int> parse(int argc, const char* const* argv);

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace emu
