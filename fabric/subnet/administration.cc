#include "fabric/subnet/administration.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "emu/base/guid.h"
#include "emu/base/link_speed.h"
#include "emu/packet/headers.h"
#include "fabric/subnet/selectors.h"

namespace fabric {

namespace {

// Where an SA datagram has what, behind the common header.
constexpr std::size_t kRmppAt = 24;
constexpr std::size_t kSegmentAt = 28;
constexpr std::size_t kAdminKeyAt = 36;  // SM_Key
constexpr std::size_t kAttributeOffsetAt = 44;
constexpr std::size_t kComponentMaskAt = 48;
constexpr std::size_t kRecordsAt = 56;
constexpr std::size_t kAdminHeaderBytes = kRecordsAt - 36;  // what RMPP counts with the records

constexpr std::uint8_t kClassVersion = 2;
constexpr std::uint16_t kClassPortInfo = 0x01;
constexpr std::uint16_t kNodeRecord = 0x11;
constexpr std::uint16_t kPathRecord = 0x35;
constexpr std::uint16_t kMemberRecord = 0x38;
constexpr std::size_t kNodeRecordBytes = 108;
constexpr std::size_t kClassPortInfoBytes = 72;
// What ClassPortInfo says that there is: of CapabilityMask and CapabilityMask2 (IBA 15.2.3).
constexpr std::uint16_t kHasGroups = 1U << 9;
constexpr std::uint32_t kHasSendOnlyFullMembers = 1U << 12;
constexpr std::size_t kSegmentsMax = 1U << 20;  // more than any table has

// Components of a NodeRecord that may be asked for, by their bit in the mask.
struct Component {
  unsigned bit;
  std::size_t at;
  std::size_t bytes;
};
constexpr Component kNodeComponents[] = {
    {0, 0, 2},    // LID
    {4, 6, 1},    // NodeType
    {5, 7, 1},    // NumPorts
    {6, 8, 8},    // SystemImageGUID
    {7, 16, 8},   // NodeGUID
    {8, 24, 8},   // PortGUID
    {14, 44, 64}  // NodeDescription
};
// And of a PathRecord.
constexpr unsigned kByDgid = 2, kBySgid = 3, kByDlid = 4, kBySlid = 5, kByPkey = 13, kWithSl = 15;
constexpr unsigned kMtuBit = 16, kRateBit = 18, kLifeBit = 20;  // selectors; the value's is next

}  // namespace

// Records as they come to lie one behind the other, each in whole words of eight bytes. Of a table
// that has more than a datagram holds those of one segment.
struct SubnetAdministration::Records {
  std::span<std::uint8_t> room;
  std::size_t record_bytes = 0;
  bool table = false;  // else one record is wanted
  std::size_t segment = 1;
  std::size_t found = 0;  // also of the segments before
  std::size_t count = 0;
  bool full = false;

  std::size_t stride() const { return (record_bytes + 7) / 8 * 8; }
  std::size_t before() const { return (segment - 1) * (room.size() / stride()); }
  // Whether so many are all of segments before: then nobody need look at them.
  bool passes(std::size_t records) {
    if (found + records > before()) return false;
    found += records;
    return true;
  }
  // Null where it is not of this segment; and full from now on, when there is no room for it.
  std::uint8_t* next() {
    if (found++ < before()) return nullptr;
    full |= (count + 1) * stride() > room.size();
    return full ? nullptr : &room[count++ * stride()];
  }
};

std::size_t SubnetAdministration::answer(MadPayload& mad, emu::NodeId source) {
  const std::uint8_t method = mad[emu::kMadMethodAt];
  const bool table = method == emu::kMadGetTable;
  const auto attribute = get_field<2>(&mad[emu::kMadAttributeAt]);
  const std::uint64_t mask = get_field<8>(&mad[kComponentMaskAt]);
  std::array<std::uint8_t, emu::kMadBytes - kRecordsAt> asked;
  std::memcpy(asked.data(), &mad[kRecordsAt], asked.size());
  const auto segment = static_cast<std::size_t>(get_field<4>(&mad[kSegmentAt]));
  const bool trusted = get_field<8>(&mad[kAdminKeyAt]) != 0;
  // Delivered to who would not understand an answer: sent, reported, repressed.
  if (method == 0 || (method >= 3 && method <= 7)) return 0;

  std::ranges::fill(std::span(mad).subspan(kRmppAt), std::uint8_t{0});
  Records records;
  records.room = std::span(mad).subspan(kRecordsAt);
  records.table = table;
  records.segment = table ? std::clamp<std::size_t>(segment, 1, kSegmentsMax) : 1;
  if (!table) records.room = records.room.first(asked.size());
  MadStatus status = MadStatus::unsupported;
  const bool reads = table || method == emu::kMadGet;
  if (mad[emu::kMadClassVersionAt] != kClassVersion) {
    status = MadStatus::bad_version;
  } else if (attribute == kClassPortInfo && method == emu::kMadGet) {
    status = class_port_info(records);
  } else if (attribute == kNodeRecord && reads) {
    status = node_records(asked.data(), mask, source, records);
  } else if (attribute == kPathRecord && reads) {
    status = path_records(asked.data(), mask, source, records);
  } else if (attribute == kMemberRecord) {
    status = member_records(method, {asked.data(), mask, source}, trusted, records);
  }
  const bool last = !records.full;
  if (status == MadStatus::ok && !table && records.full) status = MadStatus::too_many_records;
  if (status == MadStatus::ok && !table && records.count == 0) status = MadStatus::no_records;
  if (status == MadStatus::ok && !table && records.count > 1) status = MadStatus::too_many_records;

  // A Set is answered as a Get is (IBA 15.2.2).
  const std::uint8_t as = method == emu::kMadSet ? std::uint8_t{emu::kMadGet} : method;
  mad[emu::kMadMethodAt] = as | emu::kMadResponseBit;
  put_field<2>(&mad[emu::kMadStatusAt], static_cast<std::uint16_t>(status));
  put_field<2>(&mad[kAttributeOffsetAt], records.stride() / 8);
  put_field<8>(&mad[kComponentMaskAt], mask);
  const std::size_t bytes = records.count * records.stride();
  if (table) {
    mad[kRmppAt] = 1;      // version
    mad[kRmppAt + 1] = 1;  // data
    // No response time; last, first, active.
    mad[kRmppAt + 2] =
        static_cast<std::uint8_t>(0x1f << 3 | (last ? 4 : 0) | (records.segment == 1 ? 2 : 0) | 1);
    put_field<4>(&mad[kSegmentAt], records.segment);
    put_field<4>(&mad[kRmppAt + 8], kAdminHeaderBytes + bytes);
  }
  return std::max(emu::kMadBytes, kRecordsAt + bytes);
}

MadStatus SubnetAdministration::class_port_info(Records& records) const {
  records.record_bytes = kClassPortInfoBytes;
  std::uint8_t* info = records.next();
  info[0] = 1;
  info[1] = kClassVersion;
  put_field<2>(info + 2, kHasGroups);
  put_field<4>(info + 4, kHasSendOnlyFullMembers << 5 | kResponseTime);
  return MadStatus::ok;
}

MadStatus SubnetAdministration::member_records(std::uint8_t method,
                                               const MulticastGroups::Question& question,
                                               bool trusted, Records& records) {
  records.record_bytes = MulticastGroups::kRecordBytes;
  groups_.follow();
  const auto add = [&records](const MulticastGroups::Record& record) {
    if (std::uint8_t* to = records.next()) std::ranges::copy(record, to);
    return !records.full;
  };
  if (method == emu::kMadGet || method == emu::kMadGetTable) {
    groups_.find(question, trusted, add);
    return MadStatus::ok;
  }
  if (method != emu::kMadSet && method != emu::kMadDelete) return MadStatus::unsupported;
  const auto changed = method == emu::kMadSet ? groups_.join(question) : groups_.leave(question);
  if (!changed) return changed.error();
  add(*changed);
  return MadStatus::ok;
}

MadStatus SubnetAdministration::node_records(const std::uint8_t* asked, std::uint64_t mask,
                                             emu::NodeId source, Records& records) const {
  records.record_bytes = kNodeRecordBytes;
  for (int i = 0; i < devices() && !records.full; ++i) {
    const Device device = *map_.by_lid(static_cast<emu::Lid>(i + 1));
    if (!map_.reaches(hca_device(source), device)) continue;
    std::array<std::uint8_t, kNodeRecordBytes + 20> record{};
    put_field<2>(record.data(), map_.lid(device));
    management_.node_info({device, device.is_switch ? 0 : 1},
                          SubnetManagement::Data(&record[4], 64));
    management_.node_description(device, SubnetManagement::Data(&record[44], 64));
    const bool wanted = std::ranges::all_of(kNodeComponents, [&](const Component& c) {
      return !has(mask, c.bit) || std::memcmp(&record[c.at], asked + c.at, c.bytes) == 0;
    });
    if (!wanted) continue;
    if (std::uint8_t* to = records.next()) std::memcpy(to, record.data(), kNodeRecordBytes);
  }
  return MadStatus::ok;
}

SubnetAdministration::Wanted SubnetAdministration::wanted(const std::uint8_t* gid, bool by_gid,
                                                          const std::uint8_t* lid,
                                                          bool by_lid) const {
  Wanted wanted;
  if (by_gid) {
    wanted.bad_gid = get_field<8>(gid) != emu::kGidPrefix;
    wanted.device = map_.by_guid(get_field<8>(gid + 8));
    wanted.none = !wanted.device;
  }
  if (by_lid) {
    const auto device = map_.by_lid(static_cast<emu::Lid>(get_field<2>(lid)));
    wanted.none |= !device || (by_gid && device != wanted.device);
    wanted.device = device;
  }
  return wanted;
}

MadStatus SubnetAdministration::path_records(const std::uint8_t* asked, std::uint64_t mask,
                                             emu::NodeId source, Records& records) const {
  records.record_bytes = kPathRecordBytes;
  const Wanted to = wanted(asked + 8, has(mask, kByDgid), asked + 40, has(mask, kByDlid));
  const Wanted from = wanted(asked + 24, has(mask, kBySgid), asked + 42, has(mask, kBySlid));
  if (to.bad_gid || from.bad_gid) return MadStatus::invalid_gid;
  // Of all ways there a Get means the asker's own.
  if (!records.table && !from.device && !from.none && !to.device && !to.none)
    return MadStatus::too_few_components;
  const auto path = path_like(asked, mask);
  if (to.none || from.none || !path) return MadStatus::ok;
  if (from.device || !records.table) {
    add_paths(from.device.value_or(hca_device(source)), to, *path, records);
    return MadStatus::ok;
  }
  const std::vector<std::size_t> present = map_.present();
  for (int i = 0; i < devices() && !records.full; ++i) {
    const Device device = *map_.by_lid(static_cast<emu::Lid>(i + 1));
    if (!map_.reaches(device, device)) continue;
    if (!to.device && records.passes(present[map_.part(device)])) continue;
    add_paths(device, to, *path, records);
  }
  return MadStatus::ok;
}

// What all paths have alike, if that is what was asked for.
std::optional<SubnetAdministration::PathRecord> SubnetAdministration::path_like(
    const std::uint8_t* asked, std::uint64_t mask) const {
  constexpr unsigned kAnyMember = 0x7fff;  // of a partition, whether full or limited
  const unsigned mtu = mtu_for(mtu_code(spec_.mtu_bytes), asked_for(asked + 54, mask, kMtuBit));
  const unsigned rate = emu::link_speed_of(spec_.link_bps).rate;
  const Asked rated = asked_for(asked + 55, mask, kRateBit);
  const Asked life = asked_for(asked + 56, mask, kLifeBit);
  const bool pkey = !has(mask, kByPkey) ||
                    (get_field<2>(asked + 50) & kAnyMember) == (emu::kDefaultPkey & kAnyMember);
  if (!pkey || mtu == 0 || !fits(kSubnetTimeout, life.selector, life.value)) return {};
  if (!rate_fits(rate, rated)) return {};
  PathRecord record{};
  record[49] = 0x80 | 1;  // reversible; one path
  put_field<2>(&record[50], emu::kDefaultPkey);
  if (has(mask, kWithSl)) record[53] = asked[53] & 0x0f;
  record[54] = static_cast<std::uint8_t>(kExactValue | mtu);
  record[55] = static_cast<std::uint8_t>(kExactValue | rate);
  record[56] = kExactValue | kSubnetTimeout;
  return record;
}

void SubnetAdministration::add_paths(Device from, const Wanted& to, const PathRecord& path,
                                     Records& records) const {
  if (!map_.reaches(from, from)) return;
  if (to.device) {
    if (map_.reaches(from, *to.device)) add_path(from, *to.device, path, records);
    return;
  }
  for (int i = 0; i < devices() && !records.full; ++i) {
    const Device device = *map_.by_lid(static_cast<emu::Lid>(i + 1));
    if (map_.reaches(from, device)) add_path(from, device, path, records);
  }
}

void SubnetAdministration::add_path(Device from, Device to, const PathRecord& path,
                                    Records& records) const {
  std::uint8_t* record = records.next();
  if (record == nullptr) return;
  std::ranges::copy(path, record);
  put_field<8>(record + 8, emu::kGidPrefix);
  put_field<8>(record + 16, SubnetMap::guid(to));
  put_field<8>(record + 24, emu::kGidPrefix);
  put_field<8>(record + 32, SubnetMap::guid(from));
  put_field<2>(record + 40, map_.lid(to));
  put_field<2>(record + 42, map_.lid(from));
}

}  // namespace fabric
