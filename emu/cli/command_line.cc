#include "emu/cli/command_line.h"

#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdlib>
#include <deque>

#include "emu/base/exit_code.h"

namespace emu {

namespace {

// No comparison with a NaN is true, so it would be in every range.
std::string refuse_nan(const std::string& text) {
  return std::isnan(std::strtod(text.c_str(), nullptr)) ? "Value " + text + " is no number" : "";
}

// CLI11 takes -1 for the largest number of 64 bits.
std::string refuse_minus(const std::string& text) {
  return text.starts_with('-') ? "Value " + text + " is negative" : "";
}

}  // namespace

struct CommandLine::Option::Known {
  CLI::Option* option;
};

struct CommandLine::Parts {
  CLI::App app;
  std::deque<Option::Known> options;  // pointers to them stay good

  Option::Known& know(CLI::Option* option) { return options.emplace_back(option); }
};

const CommandLine::Option& CommandLine::Option::required() const {
  known_->option->required();
  return *this;
}

const CommandLine::Option& CommandLine::Option::range(int least, int most) const {
  known_->option->check(CLI::Range(least, most));
  return *this;
}

const CommandLine::Option& CommandLine::Option::range(double least, double most) const {
  known_->option->check(CLI::Range(least, most));
  return *this;
}

const CommandLine::Option& CommandLine::Option::one_of(
    const std::vector<std::string>& words) const {
  known_->option->check(CLI::IsMember(words));
  return *this;
}

const CommandLine::Option& CommandLine::Option::list() const {
  known_->option->delimiter(',');
  return *this;
}

const CommandLine::Option& CommandLine::Option::show_default() const {
  known_->option->capture_default_str();
  return *this;
}

const CommandLine::Option& CommandLine::Option::optional_value() const {
  known_->option->expected(0, 1);
  return *this;
}

bool CommandLine::Option::given() const { return known_->option->count() != 0; }

CommandLine::CommandLine(const std::string& description, const std::string& name)
    : parts_(new Parts{CLI::App(description, name), {}}) {}

CommandLine::~CommandLine() = default;

CommandLine::Option CommandLine::option(const std::string& names, std::string& value,
                                        const std::string& help) {
  return Option(parts_->know(parts_->app.add_option(names, value, help)));
}

CommandLine::Option CommandLine::option(const std::string& names, double& value,
                                        const std::string& help) {
  return Option(parts_->know(parts_->app.add_option(names, value, help)->check(refuse_nan)));
}

CommandLine::Option CommandLine::option(const std::string& names, int& value,
                                        const std::string& help) {
  return Option(parts_->know(parts_->app.add_option(names, value, help)));
}

CommandLine::Option CommandLine::option(const std::string& names, std::int64_t& value,
                                        const std::string& help) {
  return Option(parts_->know(parts_->app.add_option(names, value, help)));
}

CommandLine::Option CommandLine::option(const std::string& names, std::uint16_t& value,
                                        const std::string& help) {
  return Option(parts_->know(parts_->app.add_option(names, value, help)));
}

CommandLine::Option CommandLine::option(const std::string& names, std::uint32_t& value,
                                        const std::string& help) {
  return Option(parts_->know(parts_->app.add_option(names, value, help)));
}

CommandLine::Option CommandLine::option(const std::string& names, std::uint64_t& value,
                                        const std::string& help) {
  return Option(parts_->know(parts_->app.add_option(names, value, help)->check(refuse_minus)));
}

CommandLine::Option CommandLine::option(const std::string& names, std::vector<std::string>& values,
                                        const std::string& help) {
  return Option(parts_->know(parts_->app.add_option(names, values, help)));
}

CommandLine::Option CommandLine::option(const std::string& names, std::vector<int>& values,
                                        const std::string& help) {
  return Option(parts_->know(parts_->app.add_option(names, values, help)));
}

CommandLine::Option CommandLine::flag(const std::string& names, bool& value,
                                      const std::string& help) {
  return Option(parts_->know(parts_->app.add_flag(names, value, help)));
}

std::optional<int> CommandLine::parse(int argc, const char* const* argv) {
  try {
    parts_->app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return parts_->app.exit(error) == 0 ? 0 : kExitBadInput;
  }
  return std::nullopt;
}

}  // namespace emu
