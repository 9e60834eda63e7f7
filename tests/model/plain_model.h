// What a plain model of a whole network offers to the comparison with an engine.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "fabric/route/detour.h"
#include "fabric/router/control_hook.h"
#include "fabric/router/spec.h"
#include "hca/wire/packet.h"

namespace model {

class PlainModel {
 public:
  virtual ~PlainModel() = default;
  virtual emu::Cycle now() const = 0;
  virtual void submit(emu::NodeId src, const hca::SendPacket& packet) = 0;
  virtual void step() = 0;
  virtual void set_weights(emu::RouterId, emu::PortId, const emu::VlWeights&) {}
  virtual void set_wire_weights(emu::NodeId, const emu::VlWeights&) {}
  virtual void set_lane_vtick(emu::RouterId, emu::PortId, emu::Vl, emu::Vtick) {}
  virtual void set_wire_vtick(emu::NodeId, emu::Vl, emu::Vtick) {}
  virtual void set_down(std::span<const fabric::LinkEnd>) {}
  // Stops the process where something is lost.
  virtual void check_invariants() const = 0;
  virtual int live_messages() const = 0;

  std::vector<hca::InjectedEvent> injected;
  std::vector<hca::DeliveredEvent> delivered;
  std::vector<hca::AnswerEvent> answers;
};

std::unique_ptr<PlainModel> make_plain_model(const fabric::NetworkSpec& spec,
                                             fabric::ControlHook* hook);

}  // namespace model
