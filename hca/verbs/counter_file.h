// Counters of ports below /sys/class/infiniband: read at its beginning, such a file says what is
// counted at that moment, as the kernel's do (counter_file.cc).
#pragma once

#include <sys/types.h>

#include <cstdio>
#include <optional>

namespace hca {

// A descriptor, or -1 and errno; none: the path is no counter that an hcad of this program keeps,
// or it is not opened to read.
std::optional<int> open_counter(const char* path, int flags);
std::optional<int> open_counter_at(int folder, const char* path, int flags, mode_t = 0);
std::optional<std::FILE*> fopen_counter(const char* path, const char* mode);
// Brings what `fd` will read up to date, if it is such a file and at its beginning.
void before_read(int fd);
// `to` is what `from` is now, or closes (`from` = -1).
void follow_counter(int from, int to);

}  // namespace hca
