#include "hca/daemon/set.h"

#include <algorithm>

#include "hca/host/congestion.h"

namespace hca {

namespace {

// A scheme that hears of routers needs the fabric's shared page (`side_band`: it is on this host).
emu::Result<void> check_live(std::string_view congestion, bool side_band) {
  const auto scheme = make_congestion(congestion, {});
  if (scheme == nullptr) return emu::fail("congestion: there is no scheme '{}'", congestion);
  if (scheme->needs() != Signal::nothing && !side_band) {
    return emu::fail(
        "congestion: {} hears of routers by the fabric's shared page, which only HCAs on its host "
        "have (attach.kind shm); use credit or none",
        congestion);
  }
  return {};
}

}  // namespace

emu::Result<void> set_control(Host& host, std::string_view key, std::string_view value,
                              bool side_band) {
  const HostOptions& options = host.options();
  if (key == "congestion") {
    if (auto live = check_live(value, side_band); !live) return live;
    host.set_congestion(value, options.completion_queues);
    return {};
  }
  if (key == "completion_queues") {
    const auto found = std::ranges::find(kCqLayoutNames, value);
    if (found == kCqLayoutNames.end()) {
      return emu::fail("completion_queues: global, separate or quad, not '{}'", value);
    }
    host.set_congestion(options.congestion, static_cast<CqLayout>(found - kCqLayoutNames.begin()));
    return {};
  }
  HostControls controls = options.controls;
  bool* field = key == "congestion_control" ? &controls.congestion_control
                : key == "power_control"    ? &controls.power_control
                : key == "admission"        ? &controls.admission
                                            : nullptr;
  if (field == nullptr) {
    return emu::fail(
        "'{}' cannot be set: congestion, completion_queues, congestion_control, power_control or "
        "admission",
        key);
  }
  if (value != "true" && value != "false") return emu::fail("{}: true or false", key);
  *field = value == "true";
  host.set_controls(controls);
  return {};
}

}  // namespace hca
