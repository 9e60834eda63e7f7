// An operating error is a returned value whose message names the thing and the number (STYLE rule
// 6).
#pragma once

#include <expected>
#include <string>
#include <utility>

#include <fmt/core.h>

namespace emu {

struct Error {
  std::string message;  // one line, says what to do
};

template <class T>
using Result = std::expected<T, Error>;

template <class... Args>
std::unexpected<Error> fail(fmt::format_string<Args...> format, Args&&... args) {
  return std::unexpected(Error{fmt::format(format, std::forward<Args>(args)...)});
}

}  // namespace emu
