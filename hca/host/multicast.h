// Who of this node is in which group. An HCA goes by the GID alone; the kernel keeps with it the
// LID that a program named, and wants to hear the same when it leaves.
#pragma once

#include <cstdint>
#include <vector>

#include "emu/packet/headers.h"

namespace hca {

struct McastMember {
  std::uint32_t qpn = 0;
  std::vector<emu::Lid> lids;  // that it was attached with, each to be detached
};

struct McastGroup {
  emu::Gid gid{};
  std::vector<McastMember> members;
};

}  // namespace hca
