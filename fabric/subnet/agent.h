// All agents of a subnet in one: whoever a management datagram is for, it is answered here. In: the
// datagram and who sent it. Out: the answer in its place, or the word that nobody answers. No I/O,
// no clock; what a datagram costs is bounded whatever it says. Called by packet.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "emu/base/units.h"
#include "emu/packet/headers.h"
#include "fabric/router/network.h"
#include "fabric/subnet/administration.h"
#include "fabric/subnet/management.h"
#include "fabric/subnet/map.h"
#include "fabric/subnet/performance.h"
#include "fabric/subnet/spec.h"

namespace fabric {

struct Answered {
  std::size_t bytes = 0;               // of the answer; 0: nobody answers
  emu::Lid lid = emu::kPermissiveLid;  // of the port that answers
};

class SubnetAgent {
 public:
  // The network outlives it.
  SubnetAgent(const SubnetSpec& spec, const Network& network, SubnetMap::NodeUp node_up,
              PerformanceManagement::LinkDowns link_downs,
              PerformanceManagement::MulticastsOf multicasts);
  SubnetAgent(const SubnetAgent&) = delete;
  SubnetAgent& operator=(const SubnetAgent&) = delete;

  // The question is in the first 256 bytes. Without an answer nothing is changed.
  Answered answer(MadPayload& mad, emu::NodeId source, emu::Lid dlid, std::uint32_t dest_qp);

 private:
  Answered directed(MadPayload& mad, emu::NodeId source, emu::Lid dlid);
  Answered by_lid(MadPayload& mad, emu::NodeId source, emu::Lid dlid);
  Answered performance(MadPayload& mad, emu::NodeId source, emu::Lid dlid);
  Answered manage(MadPayload& mad, DeviceEnd at, std::uint16_t status_bits);

  SubnetSpec spec_;
  SubnetMap map_;
  SubnetManagement management_;
  PerformanceManagement performance_;
  SubnetAdministration administration_;
};

}  // namespace fabric
