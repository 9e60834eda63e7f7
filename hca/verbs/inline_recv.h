// A short message that hcad left in the shared page (hca/abi/rings.h, InlineRecv): copied to where
// it belongs when its completion is polled, or before that, when its region is given up. By a
// system call that may fail: a program may have unmapped what it registered, and then hears of it
// by the completion, as of any message.
#pragma once

#include <cstdint>

#include "hca/verbs/objects.h"

namespace hca {

inline bool is_inline(const Cqe& cqe) { return (cqe.wc_flags & kWcInline) != 0; }

// Its completion was just polled, or nobody will poll it any more. Its place is free afterwards.
// False: the memory has gone.
bool bring_home(Context& context);

// Of a completion that was taken out of its ring, which is one like others afterwards; in error
// where the memory has gone, and so is its QP then.
void bring_home(Context& context, Cqe& cqe);

// A region is given up or moved: hcad leaves nothing more of it here.
void bring_region_home(Context& context, std::uint32_t lkey);

// A CQ is no more, and nobody will poll what it had.
void bring_cq_home(Context& context, std::uint32_t cq);

}  // namespace hca
