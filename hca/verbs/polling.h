// What both ways to poll share: the little sleep of a thread that finds nothing.
#pragma once

#include "hca/verbs/objects.h"

namespace hca {

// True: look again (it slept, or hcad has gone). Call without the CQ's lock.
bool after_empty_poll(Cq& cq);
void after_full_poll();

}  // namespace hca
