// What the hosts of a cluster must have in common in their cluster.toml. In: a resolved
// configuration. Out: keys and values as text, in one order. Used by fabricd, which tells them, and
// by hcads of other hosts, which compare them with their own.
#pragma once

#include <vector>

#include "emu/base/setting.h"
#include "emu/config/config.h"

namespace emu {

// Left out is what concerns one host alone (how it attaches, its clock), only the fabric (its
// routers' insides), or what `set` may change while the cluster runs.
std::vector<Setting> agreed_settings(const Config& config);

}  // namespace emu
