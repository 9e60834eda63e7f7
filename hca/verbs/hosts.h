// What hcad has written down of the addresses of nodes, for calls in front of the C library's.
#pragma once

#include <netinet/in.h>

#include <vector>

namespace hca {

// Of the nodes that this program is on, in their order; empty: it is on none.
std::vector<in_addr> own_addresses();

}  // namespace hca
