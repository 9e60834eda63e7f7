// Controls that change while an HCA runs: what `flitnet set KEY VALUE` asks of a node.
#pragma once

#include <string_view>

#include "emu/base/result.h"
#include "hca/host/host.h"

namespace hca {

// Whether a live HCA can run it: what routers look like and what they tell sources it hears by the
// fabric's shared page (`side_band`: that is on this host).
emu::Result<void> check_live(std::string_view congestion, bool side_band);
// Keys of the configuration's [controls]: congestion, completion_queues, congestion_control,
// power_control, admission. Fails with a sentence for the one who asked.
emu::Result<void> set_control(Host& host, std::string_view key, std::string_view value,
                              bool side_band);

}  // namespace hca
