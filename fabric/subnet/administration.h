// Subnet administration (IBA 15.2): records of nodes, of paths and of multicast groups, for who
// asks with the components that it knows; joining and leaving groups. In: a datagram. Out: the
// answer in its place; a table lies behind the datagram's header in pieces of up to 4096 bytes,
// each asked for by the number of its segment (RMPP).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>

#include "emu/packet/mad.h"
#include "fabric/subnet/fields.h"
#include "fabric/subnet/groups.h"
#include "fabric/subnet/management.h"
#include "fabric/subnet/map.h"
#include "fabric/subnet/spec.h"

namespace fabric {

// The longest payload of a packet: a datagram, or a table of records.
inline constexpr std::size_t kAnswerBytesMax = 4096;
using MadPayload = std::array<std::uint8_t, kAnswerBytesMax>;

class SubnetAdministration {
 public:
  SubnetAdministration(const SubnetSpec& spec, const SubnetMap& map,
                       const SubnetManagement& management,
                       PerformanceManagement::LinkDowns link_downs)
      : spec_(spec),
        map_(map),
        management_(management),
        groups_(spec, map, std::move(link_downs)) {}

  // Bytes of the answer; 0: nobody answers such a method.
  std::size_t answer(MadPayload& mad, emu::NodeId source);

 private:
  struct Records;
  // Who a record is about: one device, or whoever there is.
  struct Wanted {
    std::optional<Device> device;
    bool none = false;  // an address that nobody has
    bool bad_gid = false;
  };

  static constexpr std::size_t kPathRecordBytes = 64;
  using PathRecord = std::array<std::uint8_t, kPathRecordBytes>;

  MadStatus class_port_info(Records& records) const;
  MadStatus node_records(const std::uint8_t* asked, std::uint64_t mask, emu::NodeId source,
                         Records& records) const;
  MadStatus path_records(const std::uint8_t* asked, std::uint64_t mask, emu::NodeId source,
                         Records& records) const;
  MadStatus member_records(std::uint8_t method, const MulticastGroups::Question& question,
                           bool trusted, Records& records);
  std::optional<PathRecord> path_like(const std::uint8_t* asked, std::uint64_t mask) const;
  void add_paths(Device from, const Wanted& to, const PathRecord& path, Records& records) const;
  void add_path(Device from, Device to, const PathRecord& path, Records& records) const;
  Wanted wanted(const std::uint8_t* gid, bool by_gid, const std::uint8_t* lid, bool by_lid) const;
  int devices() const { return map_.nodes() + map_.routers(); }

  const SubnetSpec& spec_;
  const SubnetMap& map_;
  const SubnetManagement& management_;
  MulticastGroups groups_;
};

}  // namespace fabric
