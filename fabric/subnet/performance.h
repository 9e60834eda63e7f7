// Performance management (IBA 16.1): the counters of ports. A counter begins at 0 again when
// somebody sets it: what it had then is kept here and taken off, the network's own count goes on.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "fabric/subnet/fields.h"
#include "fabric/subnet/map.h"

namespace fabric {

class PerformanceManagement {
 public:
  using Data = std::span<std::uint8_t, 192>;
  // How often the link at a router's port has gone down, since the fabric began.
  using LinkDowns = std::function<std::uint64_t(LinkEnd)>;
  // Packets to groups that have left a node's HCA and come to it, each of them a copy.
  struct Multicasts {
    std::uint64_t sent = 0;
    std::uint64_t received = 0;
  };
  using MulticastsOf = std::function<Multicasts(emu::NodeId)>;
  PerformanceManagement(const SubnetMap& map, std::uint32_t flit_bits, LinkDowns link_downs,
                        MulticastsOf multicasts);

  // `data` is the question's; the answer takes its place.
  MadStatus answer(std::uint8_t method, std::uint16_t attribute, Device device, Data data);

 private:
  // Words and packets, sent and received, then the cycles in which a flit had to wait, and how
  // often the link went down; the packets once more, by whether they were for one node.
  enum Counter : std::uint8_t {
    sent_words,
    received_words,
    sent,
    received,
    wait,
    downs,
    unicast_sent,
    unicast_received,
    multicast_sent,
    multicast_received,
    kCounters
  };
  using Counts = std::array<std::uint64_t, kCounters>;
  // PortCounters and PortCountersExtended are reset apart.
  struct Resets {
    Counts narrow{};
    Counts wide{};
  };

  Counts counts(Device device, int port) const;
  Multicasts multicasts(Device device, int port) const;
  Counts sum(Device device, std::uint8_t port_select, Counts Resets::*since) const;
  void reset(Device device, std::uint8_t port_select, Counts Resets::*since, unsigned counters);
  bool has(Device device, std::uint8_t port_select) const;
  MadStatus narrow(bool sets, Device device, Data data);
  MadStatus wide(bool sets, Device device, Data data);
  Resets& resets(Device device, int port);
  const Resets& resets(Device device, int port) const;

  const SubnetMap& map_;
  std::uint32_t flit_bits_;
  LinkDowns link_downs_;
  MulticastsOf multicasts_;
  std::vector<Resets> of_node_;
  std::vector<std::vector<Resets>> of_switch_;  // [router][its port]
};

}  // namespace fabric
