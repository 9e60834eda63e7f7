// /dev/infiniband/umad0 for a stock libibumad: opened and asked here (umad_file.cc), written, read
// and polled as it is, for the descriptor is a connection with hcad.
#pragma once

#include <optional>

namespace hca {

// A descriptor, or -1 and errno; none: the path is no umad of this program's nodes.
std::optional<int> open_umad(const char* path, int flags);
// What the kernel's umad would answer; none: the descriptor is no umad, or the request none of its.
std::optional<int> ask_umad(int fd, unsigned long request, void* argument);

}  // namespace hca
