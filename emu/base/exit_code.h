// What a program's exit codes mean, beside 0 (README.md, exit codes).
#pragma once

namespace emu {

inline constexpr int kExitFailed = 1;         // something could not be done
inline constexpr int kExitBadInput = 2;       // the command line or an input file is wrong
inline constexpr int kExitInterrupted = 130;  // SIGINT or SIGTERM came before the end

}  // namespace emu
