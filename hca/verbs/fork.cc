// Forking is always safe, because hcad needs no page of ours to stay where it is.
#include "hca/verbs/objects.h"

using namespace hca;

extern "C" {

int ibv_fork_init() { return 0; }
ibv_fork_status ibv_is_fork_initialized() { return IBV_FORK_UNNEEDED; }
int ibv_dontfork_range(void*, std::size_t) { return 0; }
int ibv_dofork_range(void*, std::size_t) { return 0; }

}  // extern "C"
