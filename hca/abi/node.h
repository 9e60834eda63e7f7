// The node page: what an hcad tells every program of its node without being asked. One per hcad,
// mapped read-only by applications. hcad writes all of it; the cold part before it listens.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "hca/abi/limits.h"

namespace hca {

inline constexpr std::uint32_t kNodeMagic = 0x444e4c46;  // "FLND"

struct NodePage {
  // cold
  std::uint32_t magic;
  std::uint32_t version;
  std::uint64_t node_guid;   // host order
  std::uint64_t port_guid;   // host order; lower half of GID 0
  std::uint64_t gid_prefix;  // host order; upper half of GID 0, fe80::/10 by default
  std::uint64_t link_bps;
  std::uint64_t cycle_ps;  // length of a cycle
  std::uint16_t lid;
  std::uint16_t sm_lid;
  std::uint16_t pkey;       // 0xffff, index 0
  std::uint8_t active_mtu;  // IBV_MTU_*
  std::uint8_t max_mtu;     // IBV_MTU_*
  std::uint32_t node_index;
  std::uint32_t vendor_id;
  std::uint32_t vendor_part_id;
  char device_name[32];          // zero terminated
  char node_name[64];            // zero terminated
  std::uint8_t class_of_sl[16];  // emu::TrafficClass
  std::uint32_t ipv4;            // RoCE v2: GID 1 is ::ffff:a.b.c.d; host order
  std::uint8_t link_layer;       // IBV_LINK_LAYER_INFINIBAND or _ETHERNET
  // 1: a message goes through several processes, so who waits for an event looks for a while, to
  // keep a core awake for them. 0: through one, which may have the waiter's core.
  std::uint8_t waiters_look;
  // Where one process alone works for programs: its CPU, and one more. 0: there are several. Not in
  // the hot line, which it writes all the time: who polls looks here as often.
  std::atomic<std::uint16_t> works_on;
  std::uint32_t max_message_bytes;  // that the packets of any connection can carry
  // hot
  alignas(64) std::atomic<std::uint64_t> now_ns;  // emulated time
  std::atomic<std::uint32_t> port_state;          // IBV_PORT_*: ACTIVE while the fabric is attached
  std::atomic<std::uint32_t> sleeping;            // reserved
  std::uint8_t reserved1[48];
};
static_assert(offsetof(NodePage, node_guid) == 8 && offsetof(NodePage, lid) == 48 &&
              offsetof(NodePage, node_index) == 56 && offsetof(NodePage, device_name) == 68 &&
              offsetof(NodePage, node_name) == 100 && offsetof(NodePage, class_of_sl) == 164 &&
              offsetof(NodePage, ipv4) == 180 && offsetof(NodePage, link_layer) == 184 &&
              offsetof(NodePage, works_on) == 186 && offsetof(NodePage, max_message_bytes) == 188 &&
              offsetof(NodePage, now_ns) == 192 && sizeof(NodePage) == 256);

}  // namespace hca
