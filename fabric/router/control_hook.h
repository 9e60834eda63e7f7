// The engine asks admission here. Implemented over fabric/admit by whoever builds the network;
// called by stage 2 (route) of a router when the head of a probe or release packet is routed. Out
// of line, rare.
#pragma once

#include <cstdint>

#include "emu/base/units.h"
#include "emu/wire/message.h"

namespace fabric {

struct ControlHead {
  emu::RouterId router;
  emu::PortId in_port;
  emu::PortId out_port;
  emu::PacketKind kind;  // probe or release
  emu::NodeId src;
  emu::NodeId dest;
  std::uint64_t cookie;
  std::uint32_t handle;  // the caller's name for the ProbeBody
  emu::Cycle cycle;
};

class ControlHook {
 public:
  virtual ~ControlHook() = default;
  // A probe: true books and lets it go on, false marks it with this router; a marked probe travels
  // on but asks no further router. A release: gives back; the result is ignored. A release asks
  // every router of the path, so giving back what is not booked must be harmless.
  virtual bool at_route(const ControlHead& head) = 0;
};

}  // namespace fabric
