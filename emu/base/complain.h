// What a program says: its result on stdout, or one line on stderr when it cannot. Where that line
// cannot be written (a log on a full disk) nobody hears it, and the program goes on; fmt::print
// would end it by an exception.
#pragma once

#include <string_view>

namespace emu {

// "process: message"; returns `code`.
int complain(std::string_view process, std::string_view message, int code);

// All of `text` on stdout, at once; 0, or 1 behind a complaint: a full disk, a reader that left.
int write_out(std::string_view process, std::string_view text);

}  // namespace emu
