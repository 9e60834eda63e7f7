// The subnet's administration (IBA 15.2): ways between ports, and the list of all nodes. A table
// comes in one piece, as a kernel hands it to a program that has put its segments together.
#include <algorithm>

#include "emu/base/guid.h"
#include "emu/base/link_speed.h"
#include "fabric/subnet/agent.h"

namespace fabric {

namespace {

constexpr std::uint16_t kClassPortInfo = 0x01;
constexpr std::uint16_t kNodeRecord = 0x11;
constexpr std::uint16_t kPathRecord = 0x35;
constexpr std::size_t kRecordsAt = 56;
constexpr std::size_t kNodeRecordBytes = 112;
constexpr std::size_t kPathRecordBytes = 64;
// Which fields of a record say what is looked for.
constexpr std::uint64_t kByDgid = 1U << 2;
constexpr std::uint64_t kBySgid = 1U << 3;
constexpr std::uint64_t kByDlid = 1U << 4;
constexpr std::uint64_t kBySlid = 1U << 5;
constexpr std::uint64_t kNodeByLid = 1U << 0;

// IBA's number of a rate, by width and signalling.
unsigned rate_code(const emu::LinkSpeed& speed) {
  constexpr struct {
    std::uint64_t mbps;
    unsigned code;
  } kRates[] = {{2'500, 2},   {5'000, 5},    {10'000, 3},   {20'000, 6},  {40'000, 7},
                {56'000, 12}, {100'000, 16}, {200'000, 20}, {400'000, 21}};
  for (const auto& rate : kRates)
    if (rate.mbps == speed.mbps) return rate.code;
  return 2;
}

}  // namespace

bool SubnetAgent::path_record(emu::Lid from, emu::Lid to, Fields record) const {
  const auto source = at_lid(from);
  const auto target = at_lid(to);
  if (!source || !target) return false;
  record.put64(8, emu::kGidPrefix);
  record.put64(16, guid_of(*target));
  record.put64(24, emu::kGidPrefix);
  record.put64(32, guid_of(*source));
  record.put16(40, to);
  record.put16(42, from);
  record.put8(49, 0x80);  // reversible
  record.put16(50, 0xffff);
  unsigned mtu = 1;
  while (mtu < 5 && (256U << (mtu - 1)) < spec_.mtu_bytes) ++mtu;
  record.put8(54, 2U << 6 | mtu);  // exactly
  record.put8(55, 2U << 6 | rate_code(emu::link_speed_of(spec_.link_bps)));
  record.put8(56, 2U << 6 | 18);
  return true;
}

// Returns the bytes of the answer; 0: not served.
std::size_t SubnetAgent::administration(const emu::Mad& asked, emu::NodeId source,
                                        std::span<std::uint8_t> answer) const {
  const auto attribute = static_cast<std::uint16_t>(get(asked, emu::kMadAttributeAt, 2));
  const bool table = asked[emu::kMadMethodAt] == emu::kMadGetTable;
  if (!table && asked[emu::kMadMethodAt] != emu::kMadGet) return 0;
  const std::uint64_t mask = get(asked, 48, 8);
  const std::span<const std::uint8_t> wanted(asked.data() + kRecordsAt, 200);
  const Fields fields(answer);
  if (attribute == kClassPortInfo && !table) {
    fields.put8(kRecordsAt, 1);
    fields.put8(kRecordsAt + 1, 2);
    fields.put8(kRecordsAt + 7, 18);
    return emu::kMadBytes;
  }
  std::size_t size = 0;
  std::size_t end = kRecordsAt;
  const auto room = [&] {
    if (end + size > answer.size() || (!table && end != kRecordsAt)) return false;
    std::fill_n(answer.begin() + static_cast<std::ptrdiff_t>(end), size, std::uint8_t{0});
    return true;
  };
  const auto lids = static_cast<unsigned>(network_.nodes() + network_.routers());
  if (attribute == kPathRecord) {
    size = kPathRecordBytes;
    auto from = emu::lid_of(source);
    if ((mask & kBySlid) != 0) {
      from = static_cast<emu::Lid>(get(wanted, 42, 2));
    } else if ((mask & kBySgid) != 0) {
      from = lid_of_gid(wanted.subspan(24, 16));
    }
    unsigned first = 1;
    unsigned last = lids;
    if ((mask & kByDlid) != 0) {
      first = last = static_cast<unsigned>(get(wanted, 40, 2));
    } else if ((mask & kByDgid) != 0) {
      first = last = lid_of_gid(wanted.subspan(8, 16));
    }
    for (unsigned to = first; to <= last && room(); ++to)
      if (path_record(from, static_cast<emu::Lid>(to), fields.from(end))) end += size;
  } else if (attribute == kNodeRecord) {
    size = kNodeRecordBytes;
    const auto only = (mask & kNodeByLid) != 0 ? static_cast<unsigned>(get(wanted, 0, 2)) : 0U;
    for (unsigned lid = 1; lid <= lids && room(); ++lid) {
      const auto target = at_lid(static_cast<emu::Lid>(lid));
      if (!target || (only != 0 && lid != only)) continue;
      fields.put16(end, lid);
      node_info(*target, fields.from(end + 4));
      const std::string name = name_of(*target);
      std::copy_n(name.begin(), std::min<std::size_t>(name.size(), 63),
                  answer.begin() + static_cast<std::ptrdiff_t>(end + 44));
      end += size;
    }
  } else {
    return 0;
  }
  fields.put16(44, size / 8);  // AttributeOffset
  if (!table) return end == kRecordsAt ? 0 : emu::kMadBytes;
  fields.put8(emu::kMadMethodAt, emu::kMadGetTableResponse);
  fields.put8(24, 1);  // RMPP: its version, data, active, first and last
  fields.put8(25, 1);
  fields.put8(26, 7);
  fields.put8(27, 0);
  fields.put32(28, 1);
  fields.put32(32, end - 36);
  return std::max(end, emu::kMadBytes);
}

}  // namespace fabric
