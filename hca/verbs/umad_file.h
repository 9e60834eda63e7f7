// /dev/infiniband/umad0 for a stock libibumad: opened, asked, written and read here (umad_file.cc),
// polled and closed as it is, for the descriptor is a connection with hcad.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <optional>

namespace hca {

// A descriptor, or -1 and errno; none: the path is no umad of this program's nodes.
std::optional<int> open_umad(const char* path, int flags);
// What the kernel's umad would answer; none: the descriptor is no umad, or the request none of its.
std::optional<int> ask_umad(int fd, unsigned long request, void* argument);
// The same for a datagram that a program writes.
std::optional<ssize_t> write_umad(int fd, const void* bytes, std::size_t count);

}  // namespace hca
