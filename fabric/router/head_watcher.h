// The engine tells of heads here: what a detector of congestion sees of a router. Read-only:
// nothing that a watcher does changes what the routers do. General engine only, without circuits;
// called in the order of the routers' stages, rare (once a message and hop).
#pragma once

#include <cstdint>

#include "emu/base/units.h"

namespace fabric {

struct HeadAt {
  emu::RouterId router;
  emu::PortId in_port;
  emu::Vl lane;  // of the input port
  emu::NodeId src;
  emu::NodeId dest;
  emu::TrafficClass traffic_class;
  std::uint32_t handle;  // the sender's name for the message
  emu::Cycle cycle;
};

class HeadWatcher {
 public:
  virtual ~HeadWatcher() = default;
  // Stage 1: the head joined the buffer of its lane; its message occupies a place there until its
  // tail has crossed.
  virtual void came(const HeadAt& head) = 0;
  // Stage 2: it learned its output port.
  virtual void routed(const HeadAt& head, emu::PortId out_port) = 0;
  // Stage 4: the tail of the lane's oldest message crossed.
  virtual void left(emu::RouterId router, emu::PortId in_port, emu::Vl lane,
                    emu::PortId out_port) = 0;
};

}  // namespace fabric
