// Admission at the HCA (ACP section 4.1): the own link is checked first, then a probe asks every
// router of the path. In: requests, answers, time. Out: probes and releases for the port, outcomes.
#pragma once

#include <cstdint>
#include <vector>

#include "emu/base/units.h"
#include "emu/wire/message.h"
#include "hca/host/events.h"

namespace hca {

class HostState;
struct Qp;

enum class ConnectionState : std::uint8_t {
  free,
  probing,  // asked, no answer yet
  granted,  // booked along the path
  local,    // granted while admission is off: nothing is booked
};

struct Connection {
  ConnectionState state = ConnectionState::free;
  bool renewing = false;  // probes again after a restart of the fabric; nobody waits
  std::uint8_t attempts = 0;
  emu::NodeId dest = 0;
  emu::Vl vl = 0;
  emu::Vl vl_in = 0;
  std::uint32_t qpn = 0;
  std::uint64_t id = 0;  // never used twice by this node
  std::uint64_t rate_bps = 0;
  std::uint64_t peak_bps = 0;
  emu::Cycle answer_by = emu::kNever;
  emu::Cycle asked_at = 0;
};

struct ControlPacket {
  emu::ProbeBody body;
  emu::Cycle launch;  // 0: as soon as possible
  emu::PacketKind kind;
};

inline constexpr std::uint8_t kProbeAttempts = 6;
inline constexpr emu::EmuNs kProbeTimeoutNs = 30'000'000;  // many times a loaded path on VL15
inline constexpr std::uint16_t kProbeFlits = 10;           // as the papers' control packets
static_assert(kProbeAttempts * kProbeTimeoutNs < 1'000'000'000, "an answer within a second");

struct Admission {
  std::vector<Connection> connections;
  std::vector<std::uint32_t> free_connections;
  std::vector<std::uint32_t> probing;  // few: asked, unanswered
  std::vector<ControlPacket> outbox;   // ring, waits for packet slots
  std::uint32_t outbox_first = 0;      // free running
  std::uint32_t outbox_last = 0;
  std::uint64_t next_id = 1;

  bool has_outbox() const { return outbox_first != outbox_last; }
};

int ask_rate(HostState& s, Qp& qp, std::uint64_t rate_bps, std::uint64_t peak_bps);
// Gives back what the QP booked or asked, behind the last of its packets that are on their way (ACP
// 4.1: the final data packet carries the release); `tell` reports a request under way as cancelled.
void release_rate(HostState& s, Qp& qp, bool tell);
void probe_answered(HostState& s, const emu::Answer& answer);
void probe_timers(HostState& s);
emu::Cycle probe_deadline(const HostState& s);
std::size_t send_probes(HostState& s);
void renew_bookings(HostState& s);

}  // namespace hca
