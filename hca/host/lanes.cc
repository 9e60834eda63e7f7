// What a node has at the wire half, by lane. The VL arbiter there holds packets back, and they keep
// their slots of the port meanwhile: had one lane all slots, the others' packets would not come to
// the arbiter, and each lane would get of the link what it hands in, whatever the arbitration
// tables say. So no lane has more packets there than slots are left (dynamic thresholds: Choudhury
// and Hahne, IEEE/ACM ToN 6(2), 1998): alone it may have half of them, each of two lanes a third.
// That is more than any lane needs to keep its link busy, and something is always left for
// acknowledgements, for what has a launch time and for the lane that comes next.
#include <algorithm>
#include <bit>

#include "hca/host/state.h"

namespace hca {

namespace {

// A lane that was full has room again when it is so many packets below: whoever waits for it goes
// on with bursts, and not with each packet that leaves. In small pools an eighth.
constexpr std::uint32_t kLaneRoomPackets = 2 * kBurstPackets;

// In a packet's cookie, above the packets of a train (state.h): its lane, whether it counts there,
// whether it is counted at all, and in which life of the port.
constexpr int kLaneShift = 52;
constexpr std::uint64_t kInLane = 1ull << 56;
constexpr std::uint64_t kAtWire = 1ull << 57;
constexpr int kLifeShift = 58;
static_assert(kLaneShift == kCookieMoreShift + kCookieMoreBits);
static_assert(emu::kVlCount == 16, "a lane has four bits");
static_assert(emu::kClassCount == 3, "open_lanes() asks them all");

std::uint32_t slots_left(const HostState& s) { return s.slots_ - std::min(s.slots_, s.at_wire_); }

void take_away(std::uint32_t& count, std::uint32_t packets) { count -= std::min(count, packets); }

}  // namespace

bool has_room(HostState& s, emu::TrafficClass traffic_class, std::uint32_t lane) {
  if (lane == kNoLane) return true;
  LaneStock& stock = s.lanes_[static_cast<std::size_t>(traffic_class)];
  if ((stock.full >> lane & 1U) != 0) return false;
  const std::uint32_t packets = stock.packets[lane];
  if (packets == 0 || packets < slots_left(s)) return true;
  stock.full |= 1U << lane;
  ++s.counters_.lane_waits;
  return false;
}

std::uint64_t lane_cookie(HostState& s, const emu::TxDesc& desc, bool in_lane) {
  if (s.slots_ == 0) return 0;
  const std::uint32_t packets = desc.more_packets + 1U;
  s.at_wire_ += packets;
  std::uint64_t cookie = kAtWire | std::uint64_t{s.port_life_} << kLifeShift;
  if (in_lane) {
    s.lanes_[static_cast<std::size_t>(desc.traffic_class)].packets[desc.vl_in] += packets;
    cookie |= kInLane | std::uint64_t{desc.vl_in} << kLaneShift;
  }
  return cookie;
}

void lane_came_back(HostState& s, emu::TrafficClass traffic_class, std::uint64_t cookie) {
  if ((cookie & kAtWire) == 0 || cookie >> kLifeShift != s.port_life_) return;
  const std::uint32_t packets = packets_of_cookie(cookie);
  take_away(s.at_wire_, packets);
  if ((cookie & kInLane) == 0) return;
  const std::uint64_t lane = cookie >> kLaneShift & (emu::kVlCount - 1U);
  take_away(s.lanes_[static_cast<std::size_t>(traffic_class)].packets[lane], packets);
}

void open_lanes(HostState& s) {
  if ((s.lanes_[0].full | s.lanes_[1].full | s.lanes_[2].full) == 0) return;  // nearly always
  const std::uint32_t left = slots_left(s);
  const std::uint32_t most = std::min(kLaneRoomPackets, s.slots_ / 8);
  for (LaneStock& stock : s.lanes_) {
    for (std::uint32_t bits = stock.full; bits != 0; bits &= bits - 1) {
      const auto lane = static_cast<std::size_t>(std::countr_zero(bits));
      const std::uint32_t packets = stock.packets[lane];
      const bool room = s.slots_ == 0 || packets + std::min(packets, most) <= left;
      if (room) stock.full &= ~(1U << lane);
    }
  }
}

void empty_lanes(HostState& s) {
  s.at_wire_ = 0;
  s.lanes_ = {};
  s.port_life_ = (s.port_life_ + 1U) % (1U << (64 - kLifeShift));
}

}  // namespace hca
