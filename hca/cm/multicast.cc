// Groups by IP address: their GID and LID follow from the address alone, so that all nodes agree
// without anybody who keeps a list. The QP itself is attached by ibv_attach_mcast.
#include <algorithm>
#include <cerrno>
#include <cstring>

#include "hca/cm/state.h"
#include "hca/host/gid.h"

namespace hca {

namespace {

constexpr std::uint16_t kPortSpaceUdp = RDMA_PS_UDP;

// As ip_ib_mc_map of the kernel, with rdma_cm's signature in port space UDP.
void fill_group(const CmState& s, const Id& id, std::uint32_t v4, ib_uverbs_ah_attr& to) {
  std::uint8_t* gid = to.grh.dgid;
  gid[0] = 0xff;
  gid[1] = 0x12;  // link local, transient
  gid[2] = 0x40;
  gid[3] = id.port_space == kPortSpaceUdp ? 0x01 : 0x1b;
  gid[4] = gid[5] = 0xff;  // P_Key
  const std::uint32_t group = v4 & 0x0fffffff;
  for (std::size_t i = 0; i < 4; ++i) {
    gid[12 + i] = static_cast<std::uint8_t>(group >> (24 - 8 * i));
  }
  emu::Gid mgid{};
  std::copy_n(gid, mgid.size(), mgid.begin());
  to.dlid = emu::group_lid_of(mgid);
  to.is_global = 1;
  to.grh.sgid_index = s.options.roce ? kIpGidIndex : 0;
  to.grh.hop_limit = 1;
  to.sl = sl_of(id);
  to.port_num = 1;
}

// As in the kernel, which takes only those; here the route, too, may be resolved already.
bool can_join(const Id& id) {
  const bool unconnected = id.state == IdState::bound || id.state == IdState::addr_resolved ||
                           id.state == IdState::route_resolved;
  return is_datagram(id) && unconnected && !id.local.any();
}

}  // namespace

CmAnswer join(CmState& s, Id& id, std::uint64_t uid, const sockaddr_in6& group,
              std::span<std::uint8_t> to) {
  const auto address = from_sockaddr(group);
  if (!address || !address->given || address->v4 >> 28 != 0xe) return {EINVAL, 0};
  if (!can_join(id)) return {EINVAL, 0};
  if (s.multicasts.size() >= s.options.ids_max || !take_share(s, id.owner, &Program::groups))
    return {ENOMEM, 0};
  while (s.multicasts.contains(s.next_multicast) || s.next_multicast == kNobody) ++s.next_multicast;
  const std::uint32_t number = s.next_multicast++;
  id.groups.push_back(number);
  s.multicasts[number] = {number, id.number, uid, 0};
  WaitingEvent waiting;
  waiting.id = id.number;
  waiting.multicast = number;
  waiting.body.uid = uid;
  waiting.body.id = number;
  waiting.body.event = static_cast<std::uint32_t>(CmEvent::multicast_join);
  rdma_ucm_ud_param& ud = waiting.body.param.ud;
  ud.qp_num = 0xffffff;
  ud.qkey = id.qkey != 0 ? id.qkey : kUdpQkey;
  fill_group(s, id, address->v4, ud.ah_attr);
  s.files[id.file].events.push_back(waiting);
  tell_file(s, id.file);
  return answer_with(rdma_ucm_create_id_resp{number}, to);
}

CmAnswer leave(CmState& s, CmFileId file, std::uint32_t number, std::span<std::uint8_t> to) {
  const auto it = s.multicasts.find(number);
  if (it == s.multicasts.end()) return {ENOENT, 0};
  Id* const id = find_id(s, file, it->second.id);
  if (id == nullptr) return {ENOENT, 0};
  std::erase(id->groups, number);
  const rdma_ucm_destroy_id_resp reply{it->second.events_reported};
  std::erase_if(s.files[file].events,
                [number](const WaitingEvent& e) { return e.multicast == number; });
  tell_file(s, file);
  s.multicasts.erase(it);
  give_back(s, id->owner, &Program::groups);
  return answer_with(reply, to);
}

}  // namespace hca
