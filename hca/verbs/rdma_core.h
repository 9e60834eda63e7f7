// Which rdma-core a program runs with: its library stays loaded behind the preloaded one and serves
// what is private to it (README), so a version never tried is refused before it misbehaves.
#pragma once

#include <string>
#include <string_view>

namespace hca {

inline constexpr unsigned kRdmaCoreTried = 44;
// Set to "any" it lets a program run with a version that was never tried.
inline constexpr char kRdmaCoreVariable[] = "FLITNET_RDMA_CORE";

// The release in the name of a library's file: 44 of "/lib/libibverbs.so.1.14.44.0"; 0: not an
// rdma-core, as our own drop-in.
unsigned rdma_core_release(std::string_view file);
// The file of a loaded libibverbs of a release never tried; empty: there is none.
std::string untried_rdma_core();

}  // namespace hca
