// What the tests of the general engine's designs build on.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "fabric/router/network.h"

namespace fabric {

inline NetworkSpec general(RouterKind router = RouterKind::non_preemptive) {
  NetworkSpec spec;
  spec.general_engine = true;
  spec.router = router;
  spec.scheduler = emu::SchedulerKind::fgvc;
  spec.lane_vtick = default_lane_vticks(spec.lanes_of_class);
  if (router == RouterKind::cut_through) spec.vc_buf_size = 40;
  return spec;
}

// Heads pass all five stages.
inline constexpr RouterKind kWormRouters[] = {RouterKind::non_preemptive, RouterKind::traditional,
                                              RouterKind::preemptive, RouterKind::cut_through};

inline hca::SendPacket packet_to(emu::NodeId dest, std::uint16_t flits, emu::Vl lane,
                                 emu::TrafficClass of_class = emu::TrafficClass::real_time) {
  hca::SendPacket packet;
  packet.dest = dest;
  packet.flits = flits;
  packet.vl_in = packet.vl_out = lane;
  packet.traffic_class = of_class;
  packet.vtick = of_class == emu::TrafficClass::best_effort ? emu::kVtickMax : emu::Vtick{14};
  return packet;
}

inline std::unique_ptr<Network> make(const NetworkSpec& spec) {
  return Network::make(spec).value();
}

inline std::vector<hca::DeliveredEvent> drain(Network& network, emu::Cycle cycles) {
  network.step(cycles);
  std::vector<hca::DeliveredEvent> events(network.delivered().begin(), network.delivered().end());
  EXPECT_EQ(network.audit(), "");
  EXPECT_TRUE(network.idle());
  return events;
}

}  // namespace fabric
