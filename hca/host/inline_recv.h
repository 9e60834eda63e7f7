// The inline receive (hca/abi/rings.h): the payload of a message that came alone, as one piece,
// waits in the shared page until the program's library copies it, which costs it less than us.
// Called by completion.cc, in front of all that a batch writes into a program's memory; what peers
// do by a second region over the same bytes is not ordered with it.
#pragma once

#include "hca/host/state.h"

namespace hca {

// Whether all that waits is one short message, and it has found its place in its program's page.
bool receives_inline(HostState& s);
// What lies there may be copied behind what is about to be written to the same memory, which then
// is over it there, too.
void lay_over(HostState& s, const MemoryPiece& later);

}  // namespace hca
