// What a program says when it cannot: one line on stderr. Where that cannot be written (a log on a
// full disk) nobody hears it, and the program goes on; fmt::print would end it by an exception.
#pragma once

#include <string_view>

namespace emu {

// "process: message"; returns `code`.
int complain(std::string_view process, std::string_view message, int code);

}  // namespace emu
