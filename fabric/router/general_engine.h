// The general engine: every design, any radix, written for clarity. Seen by others as
// Network::Impl. In: a checked spec. Network::make takes it where the fast engine does not do, or
// where the spec asks for it.
#pragma once

#include "emu/base/huge.h"
#include "fabric/router/general_design.h"
#include "fabric/router/general_hca.h"
#include "fabric/router/general_state.h"
#include "fabric/router/impl.h"

namespace fabric::general {

class Engine final : public Network::Impl {
 public:
  Engine(const NetworkSpec& network_spec, Graph network_graph, ControlHook* control_hook);

  void step(emu::Cycle cycles) override;
  void ready(hca::MessageId id) override;
  void age(std::uint64_t moved) override;
  bool watch_heads(HeadWatcher* watcher) override;
  void close_window() override;
  void windows_passed(std::uint64_t count) override { world_.herd.windows_pass(count); }
  void set_weights(emu::RouterId router, emu::PortId port, const emu::VlWeights& w) override;
  void set_wire_weights(emu::NodeId node, const emu::VlWeights& w) override;
  void set_vtick(emu::RouterId router, emu::PortId port, emu::Vl vl, emu::Vtick vtick) override;
  void set_wire_vtick(emu::NodeId node, emu::Vl vl, emu::Vtick vtick) override;
  PortCounters router_counters(emu::RouterId router, emu::PortId port) const override;
  PortCounters wire_counters(emu::NodeId node) const override;
  LinkFlits link_flits(emu::RouterId router, emu::PortId port) const override;
  Network::Occupancy occupancy(emu::RouterId router, emu::PortId port) const override;
  int wire_backlog(emu::NodeId node) const override;
  std::string audit() const override;
  std::vector<Wait> waits() const override;

 private:
  void set_up_router(std::size_t index);
  template <class Design>
  void cycles_until(emu::Cycle end);
  void pass_signals();
  unsigned lane_of(unsigned queue) const { return DesignRules<AnyDesign>(world_).lane_of(queue); }
  unsigned in_flight(unsigned unit, unsigned port, unsigned lane, unsigned level) const;
  std::string audit_link(unsigned unit, unsigned port) const;
  bool is_noted(const Router& router, unsigned p, unsigned queue) const;
  std::string audit_owners(const Router& router) const;
  std::string audit_sleepers(const Router& router) const;

  World world_;
  std::vector<Flit, emu::HugePages<Flit>> memory_;  // of all rings
  std::size_t used_ = 0;
  std::vector<Router> routers_;
  std::vector<Hca> hcas_;
};

}  // namespace fabric::general
