// What a Host is told at start: identity, fabric-wide constants, controls, sizes of its tables.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "emu/base/guid.h"
#include "emu/base/units.h"
#include "emu/energy/table.h"
#include "emu/packet/build.h"
#include "hca/abi/limits.h"
#include "hca/host/congestion.h"

namespace hca {

struct HostControls {
  bool admission = true;
  bool congestion_control = true;  // off: congestion is none, whatever its scheme
  bool power_control = true;
};

struct HostOptions {
  emu::NodeId node = 0;
  std::uint16_t nodes = 8;  // attached HCAs of the fabric: LIDs 1 … nodes
  emu::CycleTime cycle_time;
  std::uint64_t link_bps = 400'000'000;
  std::uint32_t flit_bits = 128;
  std::uint32_t packet_flits = 40;  // RC payload is cut so that a full packet has this many flits
  std::uint32_t mtu_bytes = 2048;   // largest path MTU that a connection may have
  std::uint32_t datagram_bytes = 2048;  // active MTU of the port: a UD message fits
  // Of the routers, where they take packets in whole: none may be longer. 0: no matter.
  std::uint32_t buffer_bytes = 0;
  std::uint64_t gid_prefix = emu::kGidPrefix;
  std::uint64_t guid_base = emu::kGuidBase;  // node n: guid_base + n + 1
  // Packets leave with their CRCs. Not so on the host of the fabric: in its memory nothing errs,
  // and whoever captures packets adds the CRCs (emu/packet/build.h).
  bool seals = true;
  // RoCE v2: nodes are found by GID (hca/host/gid.h), LIDs are the fabric's own business.
  bool roce = false;
  std::array<std::uint32_t, emu::kNodesVirtualMax> address_of{};  // IPv4, host order

  // Fabric-wide lane use, as in the configuration.
  std::array<emu::TrafficClass, 16> class_of_sl{};
  // Bit v: VL v; lanes of the SL's class, at least one.
  std::array<std::uint16_t, 16> lanes_of_sl = every_sl(0x000f);

  static std::array<std::uint16_t, 16> every_sl(std::uint16_t lanes) {
    std::array<std::uint16_t, 16> of_sl;
    of_sl.fill(lanes);
    return of_sl;
  }

  HostControls controls;
  std::uint32_t hca_buffer_packets = 13107;  // M of C_i = (b_i / B) M: 8 MiB of 640 B
  std::uint32_t best_effort_credits = 200;   // C_b, packets handed on and not yet injected
  std::string_view congestion = "credit";    // a scheme of hca/host/congestion.h
  CongestionReaction congestion_reaction;
  CqLayout completion_queues = CqLayout::global;
  std::uint32_t quadrants = 4;                                    // that the topology has
  std::array<std::uint8_t, emu::kNodesVirtualMax> quadrant_of{};  // by destination, seen from here
  // By destination: output ports of the own router on a shortest way, a bit each; known once the
  // fabric is there.
  std::vector<PortMask> useful_ports;
  std::uint32_t launch_horizon_us = 10'000;    // packets are handed on at most so far ahead
  std::uint64_t reservable_bps = 400'000'000;  // of the own link, that admission may book

  // Peak power: E_packet = (E_router (D + 1) + E_link D) N must fit the budget of this HCA, which
  // it holds for budget / power (ACP section 5: L_packet = ((D + 1) S - 1) + N + W_HCA; what the
  // pipeline does not take of it is W_HCA). Real time and best effort share it, real time is
  // entered first: see launch_with_power().
  emu::EnergyTable energy;
  double power_w = 0;  // this HCA's part of the cap; 0: no limit
  // The budget, in full packets to the farthest node: energy that may be held at once. One alone
  // would space packets evenly, but leave no place between those of real time. What best effort
  // holds of it is bounded by a window of the meter, too: see best_effort_budget_pj().
  std::uint32_t power_window_packets = 3;
  // Best effort alone may use so much of it (ACP's P_BE): where many best-effort packets meet, the
  // fabric holds them up and lets them go in bunches.
  double best_effort_power_share = 0.6;
  std::array<std::uint8_t, emu::kNodesVirtualMax> hops_to{};  // D: links between routers
  double packet_to_farthest_pj() const {                      // a full packet's
    return energy.packet_pj(*std::max_element(hops_to.begin(), hops_to.begin() + nodes),
                            packet_flits);
  }

  // Of the first connection that it books. A node that begins anew must not name one as before: a
  // release of its former life may still be on its way.
  std::uint64_t first_connection = 1;

  // Sizes of tables; everything is allocated at start or at object creation.
  std::uint32_t clients_max = 1024;
  std::uint32_t pds_max = kMaxPd;
  std::uint32_t mrs_max = kMaxMr + 1;  // with the number that names none
  std::uint32_t cqs_max = kMaxCq;
  std::uint32_t srqs_max = kMaxSrq + 1;
  std::uint32_t xrcds_max = 256;
  std::uint32_t qps_max = kMaxQp + 2;
  std::uint64_t seed = 1;
};

// Payload of a full packet of a connection, the same at both of its ends: on RoCE v2 each has a
// GRH.
inline std::uint32_t connection_payload(const HostOptions& options, std::uint32_t mtu_bytes,
                                        bool xrc) {
  const std::size_t more_bytes =
      (xrc ? emu::kXrcEthBytes : 0) + (options.roce ? emu::kGrhBytes : 0);
  const std::uint32_t payload = emu::rc_payload_bytes_max(
      options.packet_flits, options.flit_bits, mtu_bytes, static_cast<std::uint32_t>(more_bytes));
  if (options.buffer_bytes == 0) return payload;
  const std::size_t room = options.buffer_bytes - emu::kRcOverheadBytesMost;
  return std::min(payload, static_cast<std::uint32_t>(room) & ~3U);
}

}  // namespace hca
