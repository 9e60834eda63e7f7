// Takes events back out of a pipe of a program's, as the kernel does when their object is
// destroyed. Called by the requests that destroy objects.
#pragma once

#include <array>
#include <cstdint>
#include <functional>

#include "hca/abi/control.h"

namespace hca {

// A ChannelRecord or an AsyncRecord.
using EventRecord = std::array<std::uint32_t, 2>;
static_assert(sizeof(EventRecord) == sizeof(ChannelRecord) &&
              sizeof(EventRecord) == sizeof(AsyncRecord));

// Out of the pipe whose write end is `pipe` go the records that `gone` is true of; the others stay,
// in their order. false: there is no descriptor for it, and nothing was done.
bool recall(int pipe, const std::function<bool(const EventRecord&)>& gone);

}  // namespace hca
