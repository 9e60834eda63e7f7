#include "fabric/subnet/groups.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "emu/base/guid.h"
#include "emu/base/link_speed.h"
#include "fabric/subnet/selectors.h"

namespace fabric {

namespace {

// Where a record has what.
constexpr std::size_t kPortGidAt = 16;
constexpr std::size_t kQkeyAt = 32;
constexpr std::size_t kMlidAt = 36;
constexpr std::size_t kGroupMtuAt = 38;
constexpr std::size_t kTrafficClassAt = 39;
constexpr std::size_t kGroupPkeyAt = 40;
constexpr std::size_t kGroupRateAt = 42;
constexpr std::size_t kGroupLifeAt = 43;
constexpr std::size_t kSlFlowHopAt = 44;
constexpr std::size_t kHopLimitAt = 47;
constexpr std::size_t kScopeStateAt = 48;  // four bits of each
constexpr std::size_t kProxyAt = 49;

// Components by their bit in the mask.
enum GroupComponent : unsigned {
  kByMgid = 0,
  kByPortGid = 1,
  kByQkey = 2,
  kByMlid = 3,
  kByGroupMtu = 4,
  kByTrafficClass = 6,
  kByGroupPkey = 7,
  kByGroupRate = 8,
  kByGroupLife = 10,
  kByServiceLevel = 12,
  kByFlowLabel = 13,
  kByHopLimit = 14,
  kByScope = 15,
  kByJoinState = 16,
  kByProxy = 17,
};
constexpr std::uint64_t mask_of(std::initializer_list<GroupComponent> components) {
  std::uint64_t mask = 0;
  for (const GroupComponent component : components) mask |= std::uint64_t{1} << component;
  return mask;
}
constexpr std::uint64_t kToJoin = mask_of({kByMgid, kByPortGid, kByJoinState});
constexpr std::uint64_t kToMake =
    kToJoin | mask_of({kByQkey, kByTrafficClass, kByGroupPkey, kByServiceLevel, kByFlowLabel});

// Those that must be the same: bits of a word of 32.
struct SameBits {
  GroupComponent component;
  std::size_t word_at;
  std::uint32_t bits;
};
constexpr SameBits kSameBits[] = {
    {kByQkey, kQkeyAt, 0xffffffff},           {kByMlid, kMlidAt, 0xffff0000},
    {kByTrafficClass, kMlidAt, 0x000000ff},   {kByServiceLevel, kSlFlowHopAt, 0xf0000000},
    {kByFlowLabel, kSlFlowHopAt, 0x0fffff00}, {kByHopLimit, kSlFlowHopAt, 0x000000ff},
    {kByScope, kScopeStateAt, 0xf0000000}};

constexpr std::uint8_t kJoinStates = 0x0f;
// A full member and one that only sends: as long as there is one of these a group exists.
constexpr std::uint8_t kFullMember = 0x01 | 0x08;
constexpr std::uint8_t kProxyBit = 0x80;

constexpr unsigned kReservedFlags = 0xe0, kScopeBits = 0x0f;  // of the GID's second byte
constexpr unsigned kLinkLocal = 2;                            // a scope
constexpr unsigned kIpv4Groups = 0x401b, kIpv6Groups = 0x601b, kMadeHere = 0xa01b;  // signatures

emu::Gid gid_at(const std::uint8_t* at) {
  emu::Gid gid{};
  std::copy_n(at, gid.size(), gid.begin());
  return gid;
}

// What OpenSM takes as the GID of a new group.
bool may_be_made(const emu::Gid& gid) {
  const std::uint64_t signature = get_field<2>(&gid[2]);
  if (gid[0] != 0xff) return false;
  if (signature == kIpv4Groups || signature == kIpv6Groups) return true;
  const bool as_if_made_here = signature == kMadeHere && (gid[1] & kScopeBits) == kLinkLocal;
  return (gid[1] & kReservedFlags) == 0 && !as_if_made_here;
}

// One of the two must be a full member of the partition.
bool same_partition(std::uint64_t pkey, std::uint64_t other) {
  return ((pkey ^ other) & 0x7fff) == 0 && ((pkey | other) & 0x8000) != 0;
}

// The fastest that is asked for and that the links have; 0: there is none.
unsigned group_rate_for(unsigned link, const Asked& asked) {
  if (rate_fits(link, asked)) return link;
  unsigned fastest = 0;
  for (unsigned code = 0; code < kRateCodes; ++code) {
    const bool possible = rate_of(code) != 0 && rate_of(code) <= rate_of(link);
    if (possible && rate_fits(code, asked) && rate_of(code) > rate_of(fastest)) fastest = code;
  }
  return fastest;
}

MulticastGroups::Record with_member(MulticastGroups::Record record, emu::NodeId port,
                                    std::uint8_t join_state, bool is_proxy) {
  put_field<8>(&record[kPortGidAt], emu::kGidPrefix);
  put_field<8>(&record[kPortGidAt + 8], emu::guid_of(port));
  record[kScopeStateAt] |= join_state;
  record[kProxyAt] = is_proxy ? kProxyBit : 0;
  return record;
}

}  // namespace

MulticastGroups::MulticastGroups(const SubnetSpec& spec, const SubnetMap& map, LinkDowns link_downs)
    : spec_(spec),
      map_(map),
      link_downs_(std::move(link_downs)),
      downs_(static_cast<std::size_t>(map.nodes())),
      memberships_(static_cast<std::size_t>(map.nodes())) {}

void MulticastGroups::follow() {
  const Network& network = map_.network();
  for (int n = 0; n < map_.nodes(); ++n) {
    const auto node = static_cast<emu::NodeId>(n);
    const std::uint64_t downs = link_downs_({network.router_of(node), network.port_of(node)});
    if (downs == std::exchange(downs_[node], downs)) continue;
    for (auto group = groups_.begin(); group != groups_.end();) {
      drop(group++, [node](const Member& member) { return member.port == node; });
    }
  }
}

void MulticastGroups::drop(Groups::iterator group, const std::function<bool(const Member&)>& gone) {
  const auto give_back = [this](const Member& member) { --memberships_[member.joined_by]; };
  auto& members = group->second.members;
  for (const Member& member : members) {
    if (gone(member)) give_back(member);
  }
  std::erase_if(members, gone);
  const bool kept = std::ranges::any_of(
      members, [](const Member& member) { return (member.join_state & kFullMember) != 0; });
  if (kept) return;
  std::ranges::for_each(members, give_back);
  groups_.erase(group);
}

std::expected<emu::NodeId, MadStatus> MulticastGroups::port_of(const Question& question) const {
  const std::uint8_t* gid = question.asked + kPortGidAt;
  if (get_field<8>(gid) != emu::kGidPrefix) return std::unexpected(MadStatus::invalid_gid);
  const auto device = map_.by_guid(get_field<8>(gid + 8));
  if (!device || device->is_switch || !map_.reaches(hca_device(question.source), *device))
    return std::unexpected(MadStatus::invalid_request);
  return device->index;
}

// The one that is asked for, or where that is all zero one of its own.
std::optional<emu::Gid> MulticastGroups::gid_for(const Question& question) {
  emu::Gid gid = gid_at(question.asked);
  if (gid != emu::Gid{}) return may_be_made(gid) ? std::optional(gid) : std::nullopt;
  const unsigned scope =
      has(question.mask, kByScope) ? question.asked[kScopeStateAt] >> 4 : kLinkLocal;
  constexpr unsigned kTransient = 0x10;
  put_field<2>(&gid[0], 0xff00U | kTransient | scope);
  put_field<2>(&gid[2], kMadeHere);
  put_field<8>(&gid[4], emu::kGidPrefix);
  do {
    put_field<4>(&gid[12], ++last_made_);
  } while (groups_.contains(gid));
  return gid;
}

// As it is asked for; what is left open as rdma_cm has it (hca/cm/multicast.cc).
std::expected<MulticastGroups::Group, MadStatus> MulticastGroups::make(const Question& question) {
  const std::uint64_t mask = question.mask;
  if ((question.asked[kScopeStateAt] & kFullMember) == 0)
    return std::unexpected(MadStatus::invalid_request);
  if ((mask & kToMake) != kToMake) return std::unexpected(MadStatus::too_few_components);
  const auto gid = gid_for(question);
  if (!gid) return std::unexpected(MadStatus::invalid_request);
  const unsigned mtu = mtu_for(mtu_code(spec_.mtu_bytes),
                               asked_for(question.asked + kGroupMtuAt, mask, kByGroupMtu));
  const unsigned rate =
      group_rate_for(emu::link_speed_of(spec_.link_bps).rate,
                     asked_for(question.asked + kGroupRateAt, mask, kByGroupRate));
  if (mtu == 0 || rate == 0 ||
      !same_partition(get_field<2>(question.asked + kGroupPkeyAt), emu::kDefaultPkey))
    return std::unexpected(MadStatus::invalid_request);

  Group group;
  Record& record = group.record;
  std::copy_n(question.asked, record.size(), record.begin());
  std::ranges::copy(*gid, record.begin());
  std::fill_n(&record[kPortGidAt], gid->size(), std::uint8_t{0});
  put_field<2>(&record[kMlidAt], emu::group_lid_of(*gid));
  record[kGroupMtuAt] = static_cast<std::uint8_t>(kExactValue | mtu);
  record[kGroupRateAt] = static_cast<std::uint8_t>(kExactValue | rate);
  record[kGroupLifeAt] = kExactValue | kSubnetTimeout;
  if (!has(mask, kByHopLimit)) record[kHopLimitAt] = 1;
  put_field<4>(&record[kScopeStateAt], 0);
  record[kScopeStateAt] = nibbles((*gid)[1] & kScopeBits, 0);
  if (!is_like(record, question)) return std::unexpected(MadStatus::invalid_request);
  return group;
}

// In everything but the GID and what is a member's.
bool MulticastGroups::is_like(const Record& group, const Question& question) const {
  const std::uint64_t mask = question.mask;
  const bool same = std::ranges::all_of(kSameBits, [&](const SameBits& field) {
    const std::uint64_t differing =
        get_field<4>(&group[field.word_at]) ^ get_field<4>(question.asked + field.word_at);
    return !has(mask, field.component) || (differing & field.bits) == 0;
  });
  if (!same) return false;
  if (has(mask, kByGroupPkey) && !same_partition(get_field<2>(&group[kGroupPkeyAt]),
                                                 get_field<2>(question.asked + kGroupPkeyAt)))
    return false;
  constexpr unsigned kValueBits = 0x3f;
  const Asked mtu = asked_for(question.asked + kGroupMtuAt, mask, kByGroupMtu);
  const Asked rate = asked_for(question.asked + kGroupRateAt, mask, kByGroupRate);
  const Asked life = asked_for(question.asked + kGroupLifeAt, mask, kByGroupLife);
  return fits(group[kGroupMtuAt] & kValueBits, mtu.selector, mtu.value) &&
         rate_fits(group[kGroupRateAt] & kValueBits, rate) &&
         fits(group[kGroupLifeAt] & kValueBits, life.selector, life.value);
}

std::expected<MulticastGroups::Record, MadStatus> MulticastGroups::join(const Question& question) {
  if ((question.mask & kToJoin) != kToJoin) return std::unexpected(MadStatus::too_few_components);
  const auto port = port_of(question);
  if (!port) return std::unexpected(port.error());
  const std::uint8_t join_state = question.asked[kScopeStateAt] & kJoinStates;
  if (join_state == 0) return std::unexpected(MadStatus::invalid_request);

  const auto found = groups_.find(gid_at(question.asked));
  if (found != groups_.end() && !is_like(found->second.record, question))
    return std::unexpected(MadStatus::invalid_request);
  if (found != groups_.end()) {
    auto& members = found->second.members;
    const auto member = std::ranges::find(members, *port, &Member::port);
    if (member != members.end()) {
      if (!member->may_change(question.source)) return std::unexpected(MadStatus::invalid_request);
      member->join_state |= join_state;
      return with_member(found->second.record, *port, member->join_state, member->is_proxy());
    }
  }
  if (memberships_[question.source] == kMembershipsMax)
    return std::unexpected(MadStatus::no_resources);
  Group* group = nullptr;
  if (found != groups_.end()) {
    group = &found->second;
  } else {
    auto made = make(question);
    if (!made) return std::unexpected(made.error());
    group = &groups_.emplace(gid_at(made->record.data()), std::move(*made)).first->second;
  }
  ++memberships_[question.source];
  const Member& member = group->members.emplace_back(Member{*port, question.source, join_state});
  return with_member(group->record, *port, join_state, member.is_proxy());
}

// As IBA o15-0.1.14 has it.
std::expected<MulticastGroups::Record, MadStatus> MulticastGroups::leave(const Question& question) {
  if ((question.mask & kToJoin) != kToJoin) return std::unexpected(MadStatus::too_few_components);
  const std::uint8_t* gid = question.asked + kPortGidAt;
  if (get_field<8>(gid) != emu::kGidPrefix) return std::unexpected(MadStatus::invalid_gid);
  const auto group = groups_.find(gid_at(question.asked));
  if (group == groups_.end()) return std::unexpected(MadStatus::invalid_request);
  const auto member = std::ranges::find_if(group->second.members, [gid](const Member& candidate) {
    return emu::guid_of(candidate.port) == get_field<8>(gid + 8);
  });
  const std::uint8_t leaves = question.asked[kScopeStateAt] & kJoinStates;
  if (member == group->second.members.end() || leaves == 0 || (leaves & ~member->join_state) != 0 ||
      !member->may_change(question.source))
    return std::unexpected(MadStatus::invalid_request);
  member->join_state &= static_cast<std::uint8_t>(~leaves);
  const Record record =
      with_member(group->second.record, member->port, member->join_state, member->is_proxy());
  drop(group, [](const Member& candidate) { return candidate.join_state == 0; });
  return record;
}

void MulticastGroups::find(const Question& question, bool trusted,
                           const std::function<bool(const Record&)>& add) const {
  const std::uint8_t* asked = question.asked;
  const auto is_asked_for = [&](const Record& record) {
    const bool port = !has(question.mask, kByPortGid) ||
                      std::memcmp(&record[kPortGidAt], asked + kPortGidAt, emu::Gid{}.size()) == 0;
    const bool state = !has(question.mask, kByJoinState) ||
                       ((record[kScopeStateAt] ^ asked[kScopeStateAt]) & kJoinStates) == 0;
    const bool proxy =
        !has(question.mask, kByProxy) || ((record[kProxyAt] ^ asked[kProxyAt]) & kProxyBit) == 0;
    return port && state && proxy;
  };
  const bool one = has(question.mask, kByMgid);
  auto at = one ? groups_.find(gid_at(asked)) : groups_.begin();
  for (; at != groups_.end(); at = one ? groups_.end() : std::next(at)) {
    const Group& group = at->second;
    if (!is_like(group.record, question)) continue;
    for (const Member& member : group.members) {
      const Record record =
          with_member(group.record, member.port, member.join_state, member.is_proxy());
      if (!is_asked_for(record)) continue;
      if (!add(trusted ? record : group.record)) return;
      if (!trusted) break;
    }
  }
}

}  // namespace fabric
