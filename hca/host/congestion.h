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

namespace hca {

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

struct CongestionOptions {
  std::uint32_t credits = 200;  // C_b of ACP 4.2, for all completion queues together
  CqLayout layout = CqLayout::global;
  std::vector<std::uint8_t> quadrant_of;  // by destination: 0 ... 3, seen from this HCA
  // By destination: output ports of the own router on a shortest way, a bit each.
  std::vector<std::uint16_t> useful_ports;
};

class CongestionControl {
 public:
  virtual ~CongestionControl() = default;
  virtual bool may_send(emu::NodeId dest) = 0;
  // Nothing may be sent, wherever to.
  virtual bool blocked() const { return false; }
  // It was handed on; the tag comes back with came_back(). Tags are below kCongestionTags.
  virtual std::uint16_t handed_on(emu::NodeId) { return 0; }
  // It was injected, or will never be.
  virtual void came_back(std::uint16_t) {}
  // Packets of different groups do not wait for one another: the group of a destination.
  virtual std::uint16_t group(emu::NodeId) const { return 0; }
  virtual std::uint16_t groups() const { return 1; }
  virtual bool needs_state() const { return false; }
  virtual void fabric_state(const FabricState&, emu::Cycle) {}
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
// Null: there is none of that name.
std::unique_ptr<CongestionControl> make_congestion(std::string_view name,
                                                   const CongestionOptions& options);

// The schemes, each in its file.
std::unique_ptr<CongestionControl> make_no_congestion_control(const CongestionOptions&);
std::unique_ptr<CongestionControl> make_credit(const CongestionOptions& options);
std::unique_ptr<CongestionControl> make_alo(const CongestionOptions& options);
std::unique_ptr<CongestionControl> make_self_tuned(const CongestionOptions& options);

}  // namespace hca
