// Where a path leads for a program on a node: redirect.cc, and open() in cm_file.cc.
#pragma once

#include <array>
#include <climits>

namespace hca {

using PathRoom = std::array<char, PATH_MAX>;
// `path` itself, or another one that is in `room`.
const char* redirected(const char* path, PathRoom& room);

}  // namespace hca
