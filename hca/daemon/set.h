// Controls that change while an HCA runs: what `flitnet set KEY VALUE` asks of a node.
#pragma once

#include <string_view>

#include "emu/base/result.h"
#include "hca/host/host.h"

namespace hca {

// Keys of the configuration's [controls]: congestion, completion_queues, congestion_control,
// power_control, admission. `side_band`: the fabric's shared page is on this host. Fails with a
// sentence for the one who asked.
emu::Result<void> set_control(Host& host, std::string_view key, std::string_view value,
                              bool side_band);

}  // namespace hca
