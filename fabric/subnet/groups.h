// Multicast groups that ports have joined at the subnet's administration, and who is in them
// (MCMemberRecord, IBA 15.2.5.17). In: what somebody asks for, by components. Out: records. It
// keeps a list and no more: a copy of a packet goes to every node, and those are taken that a QP
// there is attached for (hca/host). Groups of rdma_cm are not in it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <expected>
#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "emu/packet/headers.h"
#include "fabric/subnet/fields.h"
#include "fabric/subnet/map.h"
#include "fabric/subnet/performance.h"
#include "fabric/subnet/spec.h"

namespace fabric {

// Memberships that a node may have asked for at a time: there are no more than this of each.
inline constexpr std::size_t kMembershipsMax = 64;

class MulticastGroups {
 public:
  static constexpr std::size_t kRecordBytes = 52;
  using Record = std::array<std::uint8_t, kRecordBytes>;
  // Who asks for what: a record, of which those components count that are in the mask.
  struct Question {
    const std::uint8_t* asked;
    std::uint64_t mask;
    emu::NodeId source;
  };
  using LinkDowns = PerformanceManagement::LinkDowns;
  MulticastGroups(const SubnetSpec& spec, const SubnetMap& map, LinkDowns link_downs);

  // Before each question: a node whose link has been down since the last one is in no group.
  void follow();

  // The record of the membership as it is now; its JoinState is empty when it has ended.
  std::expected<Record, MadStatus> join(const Question& question);
  std::expected<Record, MadStatus> leave(const Question& question);
  // Hands out records until it is told that it was the last. All members of a group to who is
  // trusted; to others one record of the group, which does not say who they are.
  void find(const Question& question, bool trusted,
            const std::function<bool(const Record&)>& add) const;

 private:
  struct Member {
    emu::NodeId port = 0;
    emu::NodeId joined_by = 0;  // another, where it joined as a proxy
    std::uint8_t join_state = 0;
    bool is_proxy() const { return joined_by != port; }
    // The port itself, or for one that a proxy joined whoever is in the partition: all are.
    bool may_change(emu::NodeId node) const { return is_proxy() || node == port; }
  };
  struct Group {
    Record record{};  // without what is a member's
    std::vector<Member> members;
  };
  using Groups = std::map<emu::Gid, Group>;

  std::expected<emu::NodeId, MadStatus> port_of(const Question& question) const;
  std::expected<Group, MadStatus> make(const Question& question);
  std::optional<emu::Gid> gid_for(const Question& question);
  bool is_like(const Record& group, const Question& question) const;
  // Takes members off, and the group too where nobody is left who keeps it.
  void drop(Groups::iterator group, const std::function<bool(const Member&)>& gone);

  const SubnetSpec& spec_;
  const SubnetMap& map_;
  LinkDowns link_downs_;
  Groups groups_;
  std::vector<std::uint64_t> downs_;      // [node]: at the last question
  std::vector<std::size_t> memberships_;  // [node]: those that it has asked for
  std::uint32_t last_made_ = 0;           // of GIDs
};

}  // namespace fabric
