// Multicast of UD (IBA 10.5): QPs attach to a group; a message to a group leaves as one copy for
// every node, because the fabric's worms have one end. A node without a member drops its copy.
#include <algorithm>
#include <cerrno>
#include <cstring>

#include "hca/host/state.h"

namespace hca {

namespace {

constexpr std::uint8_t kGroupGid = 0xff;  // the first byte of every multicast GID

McastGroup* find_group(HostState& s, const emu::Gid& gid) {
  const auto found = std::find_if(s.groups_.begin(), s.groups_.end(),
                                  [&gid](const McastGroup& group) { return group.gid == gid; });
  return found == s.groups_.end() ? nullptr : &*found;
}

Qp* member(HostState& s, ClientId client, std::uint32_t qpn) {
  Qp* qp = s.find_qp(qpn);
  return qp != nullptr && qp->client == client ? qp : nullptr;
}

McastMember* find_member(McastGroup& group, std::uint32_t qpn) {
  const auto found = std::ranges::find(group.members, qpn, &McastMember::qpn);
  return found == group.members.end() ? nullptr : &*found;
}

void leave(McastGroup& group, std::uint32_t qpn) {
  std::erase_if(group.members, [qpn](const McastMember& one) { return one.qpn == qpn; });
}

}  // namespace

bool is_attached(const HostState& s, std::uint32_t qpn) {
  return std::any_of(s.groups_.begin(), s.groups_.end(), [qpn](const McastGroup& group) {
    return std::ranges::find(group.members, qpn, &McastMember::qpn) != group.members.end();
  });
}

void detach_all(HostState& s, std::uint32_t qpn) {
  for (McastGroup& group : s.groups_) leave(group, qpn);
  std::erase_if(s.groups_, [](const McastGroup& group) { return group.members.empty(); });
}

void receive_multicast(HostState& s, const Arrival& arrival, const emu::ParsedPacket& packet) {
  const McastGroup* group =
      packet.headers.has_grh ? find_group(s, packet.headers.grh.dgid) : nullptr;
  if (group == nullptr) {
    ++s.counters_.dropped_no_qp;
    return;
  }
  for (const McastMember& one : group->members) {
    Qp* qp = s.find_qp(one.qpn);
    if (qp != nullptr && may_receive(*qp)) receive_datagram(s, *qp, arrival, packet);
  }
}

int Host::attach_mcast(ClientId client, std::uint32_t qpn, const emu::Gid& gid, emu::Lid lid) {
  HostState& s = *state_;
  const Qp* qp = member(s, client, qpn);
  if (qp == nullptr) return ENOENT;
  const bool lid_fits = s.options_.roce || is_group(lid);  // Ethernet has none
  if (qp->type != QpType::ud || gid[0] != kGroupGid || !lid_fits) return EINVAL;
  McastGroup* group = find_group(s, gid);
  if (group == nullptr) {
    if (s.groups_.size() == kMaxMcastGroups) return ENOMEM;
    s.groups_.push_back({gid, {}});
    group = &s.groups_.back();
  }
  McastMember* found = find_member(*group, qpn);
  if (found == nullptr) {
    if (group->members.size() == kMaxMcastQps) return ENOMEM;
    found = &group->members.emplace_back(McastMember{qpn, {}});
  }
  if (std::ranges::find(found->lids, lid) != found->lids.end()) return 0;
  if (found->lids.size() == kMaxMcastQps) return ENOMEM;
  found->lids.push_back(lid);
  return 0;
}

int Host::detach_mcast(ClientId client, std::uint32_t qpn, const emu::Gid& gid, emu::Lid lid) {
  HostState& s = *state_;
  if (member(s, client, qpn) == nullptr) return ENOENT;
  McastGroup* group = find_group(s, gid);
  McastMember* found = group == nullptr ? nullptr : find_member(*group, qpn);
  if (found == nullptr || std::erase(found->lids, lid) == 0) return EINVAL;
  if (found->lids.empty()) leave(*group, qpn);
  if (group->members.empty()) s.groups_.erase(s.groups_.begin() + (group - s.groups_.data()));
  return 0;
}

}  // namespace hca
