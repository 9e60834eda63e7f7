// What both ways to poll share: the little sleep of a thread that finds nothing.
#pragma once

#include <cstdint>

#include "hca/verbs/objects.h"

namespace hca {

// `seen`: the tail that had nothing. True: look again (it slept, or hcad has gone). Call without
// the CQ's lock.
bool after_empty_poll(Cq& cq, std::uint32_t seen);
void after_full_poll();

}  // namespace hca
