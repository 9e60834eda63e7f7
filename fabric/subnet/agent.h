// Who answers management datagrams of the subnet's classes: the agents of switches and of HCAs'
// ports (SMA, PMA), the subnet's manager (SM) and its administration (SA), all of them in one
// place, for the fabric knows what each of them would know. In: a datagram, who sent it and where
// to. Out: the answer, or nothing where on real links nobody would answer. No I/O, no clock; what
// an answer costs is bounded. IBA chapters 13 to 16; the layouts are those that infiniband-diags
// reads.
//
// LIDs: nodes have lid_of(node), switch r the number of nodes + 1 + r. Port p of a router is port
// p + 1 of the switch, whose port 0 is its own. The manager is said to be at LID 1.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "emu/base/units.h"
#include "emu/lane/policy.h"
#include "emu/packet/mad.h"
#include "fabric/router/network.h"
#include "fabric/subnet/bytes.h"

namespace fabric {

struct SubnetSpec {
  std::vector<std::string> nodes;  // names
  std::string device;              // of each of them
  std::uint64_t link_bps = 0;
  std::uint32_t flit_bits = 128;
  std::uint32_t mtu_bytes = 4096;
  std::uint32_t vendor_id = 0;
  std::uint16_t device_id = 0;
  std::array<emu::Vl, 16> lane_of_sl{};
  emu::VlWeights weights;
  std::function<bool(emu::NodeId)> node_up;                 // attached, its cable plugged in
  std::function<bool(emu::RouterId, emu::PortId)> link_up;  // between routers
};

class SubnetAgent {
 public:
  static constexpr std::size_t kAnswerBytesMax = 4096;  // a table's; all others have 256

  SubnetAgent(SubnetSpec spec, const Network& network);

  struct Answer {
    std::size_t bytes = 0;  // 0: nobody answers
    emu::Lid lid = 0;       // whose answer it is
  };
  // Of a datagram that node `source` sent to a LID, or by the route in it.
  Answer answer(const emu::Mad& asked, emu::NodeId source, emu::Lid dlid,
                std::span<std::uint8_t, kAnswerBytesMax> answer);

 private:
  // An end of a link that a datagram came to.
  struct Target {
    bool is_switch = false;
    emu::NodeId node = 0;
    emu::RouterId router = 0;
    unsigned in_port = 0;  // as the IBA counts; a switch by LID: its own
  };
  struct Totals {
    std::uint64_t sent_words = 0, received_words = 0, sent = 0, received = 0, wait = 0;
  };

  std::optional<Target> at_lid(emu::Lid lid) const;
  std::optional<Target> walk(const emu::Mad& asked, emu::NodeId source,
                             std::span<std::uint8_t> answer) const;
  // Across the link of a router's port; none: it leads nowhere now.
  std::optional<Target> beyond(emu::RouterId router, unsigned port) const;
  emu::Lid lid_of(const Target& target) const;
  emu::Lid switch_lid(emu::RouterId router) const;
  std::uint64_t guid_of(const Target& target) const;
  std::string name_of(const Target& target) const;
  unsigned ports_of(const Target& target) const;

  // Each writes the attribute's data; false: there is no such port or block.
  bool subnet_attribute(const Target& target, std::uint16_t attribute, std::uint32_t modifier,
                        Fields data);
  void node_info(const Target& target, Fields data) const;
  void switch_info(Fields data) const;
  bool port_info(const Target& target, std::uint32_t port, Fields data) const;
  bool forwarding(const Target& target, std::uint32_t block, Fields data);
  void arbitration(std::uint32_t modifier, Fields data) const;
  void manager_info(const Target& target, Fields data);
  const std::vector<std::uint8_t>& ways_to_switch(emu::RouterId to);

  bool performance(const Target& target, const emu::Mad& asked, Fields data);
  bool counters_of(const Target& target, unsigned port, Totals& totals) const;
  Totals since_reset(const Target& target, unsigned port, const Totals& totals) const;
  void reset(const Target& target, unsigned port, const Totals& totals, bool extended,
             std::uint16_t select);

  std::size_t administration(const emu::Mad& asked, emu::NodeId source,
                             std::span<std::uint8_t> answer) const;
  bool path_record(emu::Lid from, emu::Lid to, Fields record) const;
  emu::Lid lid_of_gid(std::span<const std::uint8_t> gid) const;

  SubnetSpec spec_;
  const Network& network_;
  std::map<std::pair<emu::RouterId, unsigned>, emu::NodeId> node_at_;  // by the router's port
  std::map<std::pair<emu::Lid, unsigned>, Totals> reset_;              // by LID and port
  // [switch] towards it from each router, the port as the IBA counts; made when it is asked for.
  std::map<emu::RouterId, std::vector<std::uint8_t>> ways_;
  std::vector<LinkEnd> ways_down_;  // the links that were down when they were made
  std::uint32_t asked_ = 0;
};

}  // namespace fabric
