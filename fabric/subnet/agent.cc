#include "fabric/subnet/agent.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "emu/packet/mad.h"
#include "fabric/subnet/fields.h"

namespace fabric {

namespace {

// Of SMPs by directed route (IBA 14.2.1.2).
constexpr std::size_t kHopPointerAt = 6;
constexpr std::size_t kInitialPathAt = 128;
constexpr std::size_t kReturnPathAt = 192;
constexpr std::size_t kHopsMax = 63;

void set_status(MadPayload& mad, MadStatus status, std::uint16_t bits) {
  mad[emu::kMadMethodAt] = emu::kMadGetResponse;
  put_field<2>(&mad[emu::kMadStatusAt], static_cast<std::uint16_t>(status) | bits);
}

}  // namespace

SubnetAgent::SubnetAgent(const SubnetSpec& spec, const Network& network, SubnetMap::NodeUp node_up,
                         PerformanceManagement::LinkDowns link_downs,
                         PerformanceManagement::MulticastsOf multicasts)
    : spec_(spec),
      map_(network, std::move(node_up)),
      management_(spec_, map_),
      performance_(map_, spec_.flit_bits, link_downs, std::move(multicasts)),
      administration_(spec_, map_, management_, std::move(link_downs)) {}

Answered SubnetAgent::answer(MadPayload& mad, emu::NodeId source, emu::Lid dlid,
                             std::uint32_t dest_qp) {
  map_.follow();
  const std::uint8_t mad_class = mad[emu::kMadClassAt];
  const std::uint8_t method = mad[emu::kMadMethodAt];
  if (mad[0] != 1 || (method & emu::kMadResponseBit) != 0) return {};
  if (mad_class == emu::kClassSubnetAdmin) {
    // The manager is the fabric itself: it answers also while the node that has its LID is away.
    if (dest_qp != emu::kGeneralServicesQp || dlid != kManagerLid) return {};
    return {administration_.answer(mad, source), kManagerLid};
  }
  // Everything else than Get and Set wants no answer.
  if (method != emu::kMadGet && method != emu::kMadSet) return {};
  switch (mad_class) {
    case emu::kClassSubnetDirected:
      return dest_qp == emu::kSubnetQp ? directed(mad, source, dlid) : Answered{};
    case emu::kClassSubnetLid:
      return dest_qp == emu::kSubnetQp ? by_lid(mad, source, dlid) : Answered{};
    case emu::kClassPerformance:
      return dest_qp == emu::kGeneralServicesQp ? performance(mad, source, dlid) : Answered{};
    default:
      return {};
  }
}

// Goes the way port by port: from the sender, or from the device that it goes to by its LID first.
// An HCA forwards nothing but what is its own.
Answered SubnetAgent::directed(MadPayload& mad, emu::NodeId source, emu::Lid dlid) {
  if (get_field<2>(&mad[emu::kDirectedDlidAt]) != emu::kPermissiveLid) return {};
  const std::size_t hops = mad[emu::kHopCountAt];
  if (hops > kHopsMax) return {};
  const Device self = hca_device(source);
  DeviceEnd at = {self, 1};
  if (get_field<2>(&mad[emu::kDirectedSlidAt]) != emu::kPermissiveLid) {
    const auto device = map_.by_lid(dlid);
    if (!device || !map_.reaches(self, *device)) return {};
    at = {*device, device->is_switch ? map_.port_to(device->index, self) : 1};
  }
  std::array<std::uint8_t, kHopsMax + 1> back{};
  for (std::size_t hop = 1; hop <= hops; ++hop) {
    if (!at.device.is_switch && (hop > 1 || at.device != self)) return {};
    const auto far = map_.far_end({at.device, mad[kInitialPathAt + hop]});
    if (!far) return {};
    at = *far;
    back[hop] = static_cast<std::uint8_t>(at.port);
  }
  std::copy_n(back.begin(), hops + 1, &mad[kReturnPathAt]);
  mad[kHopPointerAt] = 0;
  return manage(mad, at, emu::kMadReturning);
}

Answered SubnetAgent::by_lid(MadPayload& mad, emu::NodeId source, emu::Lid dlid) {
  const Device self = hca_device(source);
  const auto device = dlid == emu::kPermissiveLid ? std::optional(self) : map_.by_lid(dlid);
  if (!device) return {};
  const bool manager = dlid == kManagerLid && get_field<2>(&mad[emu::kMadAttributeAt]) ==
                                                  static_cast<unsigned>(kSubnetManagerInfo);
  if (!manager && !map_.reaches(self, *device)) return {};
  // It came in where the switch would send back, or from the same side.
  const int port = device->is_switch ? map_.port_to(device->index, self) : 1;
  return manage(mad, {*device, port}, 0);
}

Answered SubnetAgent::manage(MadPayload& mad, DeviceEnd at, std::uint16_t status_bits) {
  MadStatus status = MadStatus::unsupported;
  const SubnetManagement::Data data(&mad[kMadDataAt], 64);
  if (mad[emu::kMadClassVersionAt] != 1) {
    status = MadStatus::bad_version;
  } else if (mad[emu::kMadMethodAt] == emu::kMadGet) {
    std::ranges::fill(data, std::uint8_t{0});
    const auto attribute = static_cast<std::uint16_t>(get_field<2>(&mad[emu::kMadAttributeAt]));
    const auto modifier = static_cast<std::uint32_t>(get_field<4>(&mad[emu::kMadModifierAt]));
    status = management_.get(at, attribute, modifier, data);
  }
  set_status(mad, status, status_bits);
  return {emu::kMadBytes, map_.lid(at.device)};
}

Answered SubnetAgent::performance(MadPayload& mad, emu::NodeId source, emu::Lid dlid) {
  const auto device = map_.by_lid(dlid);
  if (!device || !map_.reaches(hca_device(source), *device)) return {};
  MadStatus status = MadStatus::bad_version;
  if (mad[emu::kMadClassVersionAt] == 1) {
    const auto attribute = static_cast<std::uint16_t>(get_field<2>(&mad[emu::kMadAttributeAt]));
    status = performance_.answer(mad[emu::kMadMethodAt], attribute, *device,
                                 PerformanceManagement::Data(&mad[kMadDataAt], 192));
  }
  set_status(mad, status, 0);
  return {emu::kMadBytes, dlid};
}

}  // namespace fabric
