// What a plain model of a whole network offers to the comparison with an engine.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "fabric/route/detour.h"
#include "fabric/router/control_hook.h"
#include "fabric/router/network.h"
#include "fabric/router/spec.h"
#include "hca/wire/packet.h"

namespace model {

// Every flit that a router took from a link, moved or gave to one, in the window of its cycle.
class FlitLog {
 public:
  explicit FlitLog(int window) : length_(static_cast<emu::Cycle>(window)) {}
  // `to_hca`: an HCA is attached to the port.
  void came(emu::RouterId router, std::size_t port, bool to_hca, emu::Cycle now) {
    ++links[{router, port}].in;
    ++at(router, now).arrived;
    if (to_hca) ++at(router, now).hca_flits;
  }
  void crossed(emu::RouterId router, emu::Cycle now) { ++at(router, now).crossed; }
  void left(emu::RouterId router, std::size_t port, bool to_hca, emu::Cycle now) {
    ++links[{router, port}].out;
    ++at(router, now).sent;
    ++(to_hca ? at(router, now).hca_flits : at(router, now).sent_to_routers);
  }

  std::map<std::pair<emu::RouterId, std::size_t>, fabric::LinkFlits> links;
  // By begin and router; `heads` are not counted.
  std::map<std::pair<emu::Cycle, emu::RouterId>, fabric::ActivityWindow> windows;

 private:
  fabric::ActivityWindow& at(emu::RouterId router, emu::Cycle now) {
    return windows[{now - now % length_, router}];
  }
  emu::Cycle length_;
};

class PlainModel {
 public:
  explicit PlainModel(int energy_window) : log(energy_window) {}
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
  FlitLog log;
};

std::unique_ptr<PlainModel> make_plain_model(const fabric::NetworkSpec& spec,
                                             fabric::ControlHook* hook);

}  // namespace model
