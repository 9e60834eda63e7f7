// IP addresses of nodes: who is at an address, and which address a node has. From the
// configuration, as a network with static ARP would have it.
#pragma once

#include <netinet/in.h>

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "emu/base/units.h"

namespace hca {

// An address of rdma_cm: IPv4, or IPv6 of the kind that means an IPv4 address (::ffff:a.b.c.d), or
// none given. Host order.
struct IpAddress {
  bool given = false;
  bool six = false;      // asked for in IPv6 clothes; answered in the same
  std::uint32_t v4 = 0;  // 0: any
  std::uint16_t port = 0;
  bool any() const { return v4 == 0; }
};

// What stands in a sockaddr_in or sockaddr_in6; nothing: another family, or an IPv6 address that
// nobody here has.
std::optional<IpAddress> from_sockaddr(const sockaddr_in6& from);
sockaddr_in6 to_sockaddr(const IpAddress& from);

class AddressBook {
 public:
  // One address for each node, host order.
  AddressBook(emu::NodeId self, std::vector<std::uint32_t> addresses)
      : self_(self), addresses_(std::move(addresses)) {}
  std::uint32_t own() const { return addresses_[self_]; }
  std::uint32_t of(emu::NodeId node) const { return addresses_[node]; }
  emu::NodeId self() const { return self_; }
  std::size_t nodes() const { return addresses_.size(); }
  // Loopback addresses that are no node's mean this node.
  std::optional<emu::NodeId> node_at(std::uint32_t v4) const;
  bool is_own(std::uint32_t v4) const { return v4 == 0 || node_at(v4) == self_; }

 private:
  emu::NodeId self_;
  std::vector<std::uint32_t> addresses_;
};

}  // namespace hca
