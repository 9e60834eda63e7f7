// A page of shared memory in a file of the run directory, by its path: one process writes it, any
// number read it (the clock's, the routers' state). In: path, size. Out: the mapping, which the
// caller unmaps, or one line that begins with `what` and the path.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "emu/base/result.h"

namespace emu {

enum class PageAccess : std::uint8_t {
  read,   // a file that is shorter is refused
  write,  // the file is made if need be, and as long as it must be
};

Result<void*> map_page_file(std::string_view what, const std::string& path, std::size_t bytes,
                            PageAccess access);

}  // namespace emu
