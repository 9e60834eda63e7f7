// Management datagrams (IBA 13.4): 256 bytes, unreliable, on the control class's lanes. From QP1 to
// QP1 of another node hca/cm, the multicast of this room and programs speak by them (hca/umad);
// those for the subnet's agents the fabric answers (emu::PacketKind::subnet).
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "emu/base/units.h"
#include "emu/packet/mad.h"

namespace hca {

using emu::kGeneralServicesQp;
using emu::kMadBytes;
using emu::Mad;
// First bytes of the header (IBA 13.4.2) of both classes that are spoken here; the class is byte 1.
inline constexpr std::uint8_t kMadBaseVersion = 1;
inline constexpr std::uint8_t kMadClassVersion = 2;
inline constexpr std::uint8_t kMadSend = 3;
inline constexpr std::uint32_t kGeneralServicesQkey = 0x80010000;  // IBA 10.2.5.3
// What leaves in a few turns; who has more to say at once is refused and keeps it (hca/daemon's
// CmService), or says it again.
inline constexpr std::uint32_t kMadsWaitingMax = 1024;

struct WaitingMad {
  emu::NodeId dest = 0;
  Mad bytes{};
  // For the subnet's agents; `dest` is this node then.
  bool subnet = false;
  emu::Lid dlid = 0;
  std::uint32_t qpn = kGeneralServicesQp;
};

// A ring: free-running indexes.
struct MadQueue {
  std::vector<WaitingMad> waiting = std::vector<WaitingMad>(kMadsWaitingMax);
  std::uint32_t first = 0;
  std::uint32_t last = 0;
  std::uint32_t psn = 0;
  // Sources whose relief found the ring full: they would wait for it forever, so it is owed.
  std::vector<emu::NodeId> reliefs;
  bool empty() const { return first == last; }
};

}  // namespace hca
