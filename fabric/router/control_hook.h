// The engine asks admission here. Implemented over fabric/admit by whoever builds the network;
// called by stage 2 (route) of a router when the head of a probe or release packet is routed. Out
// of line, rare.
#pragma once

#include <array>
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
  // Lane on the outgoing link that stands for each lane of a message (fabric/route/lanes.h); null:
  // the message's own.
  const std::array<emu::Vl, emu::kVlCount>* lanes_out = nullptr;
};

// The lane of the outgoing link that a message of lane `own` takes.
inline emu::Vl lane_out(const ControlHead& head, emu::Vl own) {
  return head.lanes_out != nullptr && own < emu::kVlCount ? (*head.lanes_out)[own] : own;
}

class ControlHook {
 public:
  virtual ~ControlHook() = default;
  // A probe: true books and lets it go on, false marks it with this router; a marked probe travels
  // on but asks no further router. A release: gives back; the result is ignored. A release asks
  // every router of the path, so giving back what is not booked must be harmless.
  virtual bool at_route(const ControlHead& head) = 0;
};

}  // namespace fabric
