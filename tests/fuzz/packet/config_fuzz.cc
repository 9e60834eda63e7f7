// Any text is a configuration that prints and loads again, or an error of one line.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "emu/base/check.h"
#include "emu/config/config.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto config =
      emu::Config::parse(std::string_view(reinterpret_cast<const char*>(data), size));
  if (!config) {
    CHECK(config.error().message.find('\n') == std::string::npos);
    return 0;
  }
  const std::string printed = config->to_toml();
  const auto again = emu::Config::parse(printed);
  CHECK(again.has_value() && again->to_toml() == printed);
  return 0;
}
