// XRC domains (IBA annex A14): what QPs and SRQs of several programs share. A program holds a
// handle of a domain; programs that open the same file hold handles of the same one.
#pragma once

#include <cstdint>

#include "hca/host/memory.h"

namespace hca {

// The file that names a domain for several programs, as fstat says.
struct XrcFile {
  std::uint64_t device = 0;
  std::uint64_t inode = 0;
  friend bool operator==(const XrcFile&, const XrcFile&) = default;
};

struct XrcDomain {
  bool has_file = false;  // else it is its opener's alone
  XrcFile file;
  std::uint32_t handles = 0;  // 0: the slot is free
};

struct XrcHandle {
  bool used = false;
  ClientId client = 0;
  std::uint32_t domain = 0;
  std::uint32_t users = 0;  // QPs and SRQs made or opened through it
};

}  // namespace hca
