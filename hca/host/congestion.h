// Congestion control: may a best-effort packet for `dest` be handed on to the wire half now? One
// interface; a scheme is one file and one line of the list in congestion.cc. Called by schedule.cc
// of a live HCA and by tools/sim in virtual time: the same code. In: packets handed on and
// injected, what the fabric says of itself. Out: yes or no, and a tag that the packet carries until
// it has been injected.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "emu/base/units.h"
#include "emu/wire/notice.h"

namespace hca {

struct HostOptions;

// What a scheme may be told of the fabric: the HCA's own router (ALO), the whole (Self-Tuned). A
// scheme that does not ask for it (needs_state) is told nothing.
struct FabricState {
  // By output port of the HCA's router: lanes of best effort that no message is using.
  std::span<const std::uint16_t> free_lanes;
  std::uint16_t lanes = 0;            // that best effort may use
  std::uint32_t full_buffers = 0;     // input lanes without room, in all routers
  std::uint32_t buffers = 1;          // input lanes of all routers
  std::uint64_t delivered_flits = 0;  // in the whole fabric since it started
};

enum class CqLayout : std::uint8_t { global, separate, quad };
inline constexpr std::array<std::string_view, 3> kCqLayoutNames = {"global", "separate", "quad"};

using PortMask = std::uint64_t;  // of a router, a bit a port: none has more than 64

// How sources react to what they are told: the keys of `controls` that say so.
struct CongestionReaction {
  // The VCT paper's: delay added or taken at a time, time without a notice after which approach 1
  // takes a step back, messages after which approach 2 takes one.
  emu::Cycle vct_step_cycles = 32;
  emu::Cycle vct_timeout_cycles = 64;
  std::uint32_t vct_messages = 1;
  bool vct_counts_held = true;  // of these only what the delay held
  // ibcc (IBA A10.2): entries of the table that a BECN moves a flow on, the last one, and the time
  // after which it moves back by one. 150 of the IBA's units of 1.024 us.
  std::uint32_t ccti_increase = 1;
  std::uint32_t ccti_limit = 127;
  emu::EmuNs ccti_timer_ns = 153'600;
  // dcqcn (Zhu, figure 7 and section 5): the timer of alpha and of the rate, g, R_AI and R_HAI as
  // parts of the link.
  emu::EmuNs dcqcn_timer_ns = 55'000;
  double dcqcn_gain = 1.0 / 256;
  double dcqcn_rate_ai = 0.001;
  double dcqcn_rate_hai = 0.01;
};

struct CongestionOptions {
  std::uint32_t credits = 200;  // C_b of ACP 4.2, for all completion queues together
  CqLayout layout = CqLayout::global;
  std::uint32_t quadrants = 4;  // that the topology has: completion queues of CqLayout::quad
  std::vector<std::uint8_t> quadrant_of;  // by destination, of these, seen from this HCA
  // By destination: output ports of the own router that the routing may choose.
  std::vector<PortMask> useful_ports;
  CongestionReaction reaction;
  emu::CycleTime time;
};

enum class Signal : std::uint8_t {
  nothing,
  state,  // fabric_state(), again and again
  blame,  // notice(): routers detect congestion and whose packets make it
  marks,  // notice(): packets arrived that routers had marked
};

class CongestionControl {
 public:
  virtual ~CongestionControl() = default;
  // `now` never falls, here and below.
  virtual bool may_send(emu::NodeId dest, emu::Cycle now) = 0;
  // Nothing may be sent, wherever to.
  virtual bool blocked(emu::Cycle) { return false; }
  // When time alone may end that: the cycle at which to ask again; kNever: something must happen.
  virtual emu::Cycle ready_at() const { return emu::kNever; }
  // It was handed on; the tag comes back with came_back(). Tags are below kCongestionTags.
  virtual std::uint16_t handed_on(emu::NodeId, std::uint16_t /* flits */, emu::Cycle) { return 0; }
  // It was injected, or will never be.
  virtual void came_back(std::uint16_t, emu::Cycle) {}
  // Packets of different groups do not wait for one another: the group of a destination.
  virtual std::uint16_t group(emu::NodeId) const { return 0; }
  virtual std::uint16_t groups() const { return 1; }
  // What the scheme must be told, or it does nothing.
  virtual Signal needs() const { return Signal::nothing; }
  virtual void fabric_state(const FabricState&, emu::Cycle) {}
  // About this HCA's packets to `dest`; blame: whatever their destination.
  virtual void notice(emu::NoticeKind, emu::NodeId /* dest */, emu::Cycle) {}
  // By how much it holds each message back now, where it does it so.
  virtual emu::Cycle delay_cycles(emu::Cycle) { return 0; }
  // All that was handed on is gone.
  virtual void restart() {}
};
inline constexpr std::uint16_t kCongestionTags = 64;
static_assert(kCongestionTags >= emu::kNodesMax, "a tag for each destination");

struct CongestionScheme {
  std::string_view name;
  std::unique_ptr<CongestionControl> (*make)(const CongestionOptions&);
};
std::span<const CongestionScheme> congestion_schemes();
// What a scheme is told of the HCA that it serves.
CongestionOptions congestion_options(const HostOptions& options);
// Null: there is none of that name.
std::unique_ptr<CongestionControl> make_congestion(std::string_view name,
                                                   const CongestionOptions& options);

// The schemes, each in its file.
std::unique_ptr<CongestionControl> make_no_congestion_control(const CongestionOptions&);
std::unique_ptr<CongestionControl> make_credit(const CongestionOptions& options);
std::unique_ptr<CongestionControl> make_alo(const CongestionOptions& options);
std::unique_ptr<CongestionControl> make_self_tuned(const CongestionOptions& options);
std::unique_ptr<CongestionControl> make_vct1(const CongestionOptions& options);
std::unique_ptr<CongestionControl> make_vct2(const CongestionOptions& options);
std::unique_ptr<CongestionControl> make_ibcc(const CongestionOptions& options);
std::unique_ptr<CongestionControl> make_dcqcn(const CongestionOptions& options);

}  // namespace hca
