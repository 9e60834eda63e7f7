// The head of a probe or release asks admission where it is routed: the same in every engine.
// Called where they route: stage 2.
#pragma once

#include "fabric/router/control_hook.h"
#include "hca/wire/message.h"

namespace fabric {

inline bool asks_admission(const ControlHook* hook, const hca::Message& message) {
  return message.kind != emu::PacketKind::data && !message.is_answer && hook != nullptr;
}

struct AskedAt {
  emu::RouterId router;
  unsigned in_port;
  unsigned out_port;
  emu::Cycle cycle;
  const std::array<emu::Vl, emu::kVlCount>* lanes_out;  // ControlHead
};

inline void ask_admission(ControlHook& hook, hca::Message& message, const AskedAt& at) {
  if (message.rejected_by != emu::kNoRouter) return;  // a refused probe asks nobody any more
  const bool accepted = hook.at_route({.router = at.router,
                                       .in_port = static_cast<emu::PortId>(at.in_port),
                                       .out_port = static_cast<emu::PortId>(at.out_port),
                                       .kind = message.kind,
                                       .src = message.src,
                                       .dest = message.dest,
                                       .cookie = message.cookie,
                                       .handle = message.handle,
                                       .cycle = at.cycle,
                                       .lanes_out = at.lanes_out});
  if (!accepted && message.kind == emu::PacketKind::probe) message.rejected_by = at.router;
}

}  // namespace fabric
