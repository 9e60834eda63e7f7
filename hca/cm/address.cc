#include "hca/cm/address.h"

#include <algorithm>
#include <cstring>

namespace hca {

namespace {
constexpr std::uint32_t kLoopback = 0x7f000001;
constexpr std::size_t kV4InV6 = 12;
}  // namespace

std::optional<IpAddress> from_sockaddr(const sockaddr_in6& from) {
  IpAddress address;
  if (from.sin6_family == AF_UNSPEC) return address;
  address.given = true;
  if (from.sin6_family == AF_INET) {
    sockaddr_in v4;
    std::memcpy(&v4, &from, sizeof v4);
    address.v4 = ntohl(v4.sin_addr.s_addr);
    address.port = ntohs(v4.sin_port);
    return address;
  }
  if (from.sin6_family != AF_INET6) return std::nullopt;
  address.six = true;
  address.port = ntohs(from.sin6_port);
  if (IN6_IS_ADDR_UNSPECIFIED(&from.sin6_addr)) return address;
  if (IN6_IS_ADDR_LOOPBACK(&from.sin6_addr)) {
    address.v4 = kLoopback;
    return address;
  }
  if (!IN6_IS_ADDR_V4MAPPED(&from.sin6_addr)) return std::nullopt;
  std::uint32_t v4 = 0;
  std::memcpy(&v4, &from.sin6_addr.s6_addr[kV4InV6], sizeof v4);
  address.v4 = ntohl(v4);
  return address;
}

sockaddr_in6 to_sockaddr(const IpAddress& from) {
  sockaddr_in6 to{};
  if (!from.given) return to;
  if (!from.six) {
    sockaddr_in v4{};
    v4.sin_family = AF_INET;
    v4.sin_port = htons(from.port);
    v4.sin_addr.s_addr = htonl(from.v4);
    std::memcpy(&to, &v4, sizeof v4);
    return to;
  }
  to.sin6_family = AF_INET6;
  to.sin6_port = htons(from.port);
  if (from.v4 == 0) return to;
  to.sin6_addr.s6_addr[10] = to.sin6_addr.s6_addr[11] = 0xff;
  const std::uint32_t v4 = htonl(from.v4);
  std::memcpy(&to.sin6_addr.s6_addr[kV4InV6], &v4, sizeof v4);
  return to;
}

std::optional<emu::NodeId> AddressBook::node_at(std::uint32_t v4) const {
  const auto found = std::find(addresses_.begin(), addresses_.end(), v4);
  if (found != addresses_.end()) return static_cast<emu::NodeId>(found - addresses_.begin());
  if (v4 >> 24 == 127) return self_;
  return std::nullopt;
}

}  // namespace hca
