// A host with an InfiniBand HCA has an IP interface on it, and programs look for its address among
// those of the host before they listen (libfabric). The calls that list them, in front of the C
// library's: behind its interfaces stand ib0, ib1 ... with the addresses of this program's nodes,
// but for those that it has already, as in a network namespace.
#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <new>
#include <string>

#include "hca/verbs/hosts.h"
#include "hca/verbs/next.h"

namespace hca {

namespace {

constexpr in_addr_t kNetmask = 0xffff0000;  // the nodes of a cluster are one subnet
constexpr char kMark[] = "flitnet";         // ifa_data of ours

struct Interface {
  ifaddrs entry{};  // first: a list of entries is a list of these
  sockaddr_in address{};
  sockaddr_in netmask{};
  std::array<char, IFNAMSIZ> name{};
};

bool is_ours(const ifaddrs& entry) { return entry.ifa_data == kMark; }

bool has_address(const ifaddrs* list, const in_addr& address) {
  for (; list != nullptr; list = list->ifa_next) {
    if (list->ifa_addr == nullptr || list->ifa_addr->sa_family != AF_INET) continue;
    const auto* known = reinterpret_cast<const sockaddr_in*>(list->ifa_addr);
    if (known->sin_addr.s_addr == address.s_addr) return true;
  }
  return false;
}

Interface* make_interface(std::size_t number, const in_addr& address) {
  auto* const made = new (std::nothrow) Interface;
  if (made == nullptr) return nullptr;
  std::snprintf(made->name.data(), made->name.size(), "ib%zu", number);
  made->address.sin_family = made->netmask.sin_family = AF_INET;
  made->address.sin_addr = address;
  made->netmask.sin_addr.s_addr = htonl(kNetmask);
  made->entry.ifa_name = made->name.data();
  made->entry.ifa_flags = IFF_UP | IFF_RUNNING | IFF_MULTICAST;
  made->entry.ifa_addr = reinterpret_cast<sockaddr*>(&made->address);
  made->entry.ifa_netmask = reinterpret_cast<sockaddr*>(&made->netmask);
  made->entry.ifa_data = const_cast<char*>(kMark);
  return made;
}

// The C library's come first; false: no memory.
bool append_nodes(ifaddrs** list) {
  std::size_t number = 0;
  for (const std::string& text : own_addresses()) {
    in_addr address{};
    if (::inet_pton(AF_INET, text.c_str(), &address) != 1) continue;
    const std::size_t mine = number++;
    if (has_address(*list, address)) continue;
    Interface* const made = make_interface(mine, address);
    if (made == nullptr) return false;
    ifaddrs** end = list;
    while (*end != nullptr) end = &(*end)->ifa_next;
    *end = &made->entry;
  }
  return true;
}

// Takes ours off a list and frees them. What is left is the C library's.
ifaddrs* without_nodes(ifaddrs* list) {
  ifaddrs** at = &list;
  while (*at != nullptr) {
    ifaddrs* const entry = *at;
    if (!is_ours(*entry)) {
      at = &entry->ifa_next;
      continue;
    }
    *at = entry->ifa_next;
    delete reinterpret_cast<Interface*>(entry);
  }
  return list;
}

}  // namespace

}  // namespace hca

using namespace hca;

extern "C" {

void freeifaddrs(ifaddrs* list) noexcept {
  static const auto real = next<void (*)(ifaddrs*)>("freeifaddrs");
  real(without_nodes(list));
}

int getifaddrs(ifaddrs** list) noexcept {
  static const auto real = next<int (*)(ifaddrs**)>("getifaddrs");
  if (const int error = real(list); error != 0) return error;
  if (append_nodes(list)) return 0;
  freeifaddrs(*list);
  errno = ENOMEM;
  return -1;
}

}  // extern "C"
