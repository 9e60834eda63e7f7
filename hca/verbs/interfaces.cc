// A host with an InfiniBand HCA has an IP interface on it, and programs look for its address before
// they listen: among those of the host (libfabric), or by the interface's name (uDAPL). The calls
// that tell, in front of the C library's: behind its interfaces stand ib0, ib1 ... with the
// addresses of this program's nodes, but for those that it has already, as in a network namespace.
// And what connects to another node's loopback address, or sends a datagram there, comes from its
// own node's, by which its peer knows it (a kernel takes 127.0.0.1, which is every node's), also
// in IPv6 clothes (::ffff:127.1.0.2): rsockets ask for the address so, and answer where a datagram
// came from.
#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "hca/verbs/hosts.h"
#include "hca/verbs/next.h"
#include "hca/verbs/not_cancelled.h"
#include "hca/verbs/umad_file.h"

namespace hca {

namespace {

constexpr in_addr_t kNetmask = 0xffff0000;  // the nodes of a cluster are one subnet
constexpr short kFlags = IFF_UP | IFF_RUNNING | IFF_MULTICAST;
constexpr unsigned kFirstIndex = 0x10000;  // above those that a kernel counts to
constexpr char kMark[] = "flitnet";        // ifa_data of ours

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

std::string name_of(std::size_t number) { return "ib" + std::to_string(number); }

sockaddr_in without_port(const in_addr& address) {
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_addr = address;
  return to;
}

struct Named {
  std::size_t number = 0;
  in_addr address{};
};

// The interface of this name, which nobody knows but this program.
std::optional<Named> find_interface(std::string_view name) {
  const std::vector<in_addr> addresses = own_addresses();
  for (std::size_t number = 0; number < addresses.size(); ++number)
    if (name == name_of(number)) return Named{number, addresses[number]};
  return std::nullopt;
}

bool is_answered(unsigned long request) {
  return request == SIOCGIFADDR || request == SIOCGIFNETMASK || request == SIOCGIFFLAGS ||
         request == SIOCGIFINDEX;
}

// What the kernel would say of an interface; false: there is none of this name.
bool answer(unsigned long request, ifreq& asked) {
  const char* const name = asked.ifr_name;
  const auto found = find_interface({name, ::strnlen(name, sizeof asked.ifr_name)});
  if (!found) return false;
  if (request == SIOCGIFFLAGS) {
    asked.ifr_flags = kFlags;
  } else if (request == SIOCGIFINDEX) {
    asked.ifr_ifindex = static_cast<int>(kFirstIndex + found->number);
  } else {
    const bool mask = request == SIOCGIFNETMASK;
    const sockaddr_in address = without_port(mask ? in_addr{htonl(kNetmask)} : found->address);
    std::memcpy(&asked.ifr_addr, &address, sizeof address);
  }
  return true;
}

Interface* make_interface(std::size_t number, const in_addr& address) {
  auto* const made = new (std::nothrow) Interface;
  if (made == nullptr) return nullptr;
  std::snprintf(made->name.data(), made->name.size(), "%s", name_of(number).c_str());
  made->address = without_port(address);
  made->netmask = without_port({htonl(kNetmask)});
  made->entry.ifa_name = made->name.data();
  made->entry.ifa_flags = kFlags;
  made->entry.ifa_addr = reinterpret_cast<sockaddr*>(&made->address);
  made->entry.ifa_netmask = reinterpret_cast<sockaddr*>(&made->netmask);
  made->entry.ifa_data = const_cast<char*>(kMark);
  return made;
}

// The C library's come first; false: no memory.
bool append_nodes(ifaddrs** list) {
  std::size_t number = 0;
  for (const in_addr& address : own_addresses()) {
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

// Everything on 127.0.0.1 itself is as good as another host to a cluster.
bool may_be_a_node(const in_addr& peer) {
  return ntohl(peer.s_addr) >> IN_CLASSA_NSHIFT == IN_LOOPBACKNET &&
         peer.s_addr != htonl(INADDR_LOOPBACK);
}

// The address of ours that is in one subnet with a peer's.
std::optional<in_addr> address_beside(const in_addr& peer) {
  for (const in_addr& own : own_addresses()) {
    if (((own.s_addr ^ peer.s_addr) & htonl(kNetmask)) == 0) return own;
  }
  return std::nullopt;
}

// ::ffff:a.b.c.d is an IPv4 address in IPv6 clothes.
using V6Bytes = std::array<std::uint8_t, 16>;
constexpr V6Bytes kMapped{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
constexpr std::size_t kV4InV6 = 12;

V6Bytes bytes_of(const sockaddr_in6& address) {
  V6Bytes bytes;
  std::memcpy(bytes.data(), &address.sin6_addr, bytes.size());
  return bytes;
}

// The IPv4 address in one of either family; nothing: it is another kind of address.
std::optional<in_addr> v4_of(const sockaddr_in6& address) {
  if (address.sin6_family == AF_INET) {
    sockaddr_in four;
    std::memcpy(&four, &address, sizeof four);
    return four.sin_addr;
  }
  const V6Bytes bytes = bytes_of(address);
  if (address.sin6_family != AF_INET6 || !std::equal(&bytes[0], &bytes[kV4InV6], &kMapped[0]))
    return std::nullopt;
  in_addr v4{};
  std::memcpy(&v4, &bytes[kV4InV6], sizeof v4);
  return v4;
}

// The node that an address may name; nothing: it is another kind of address.
std::optional<in_addr> peer_of(const void* to, socklen_t length) {
  sockaddr_in6 peer{};
  if (to == nullptr || length < sizeof(sockaddr_in)) return std::nullopt;
  std::memcpy(&peer, to, std::min<std::size_t>(length, sizeof peer));
  const auto v4 = v4_of(peer);
  return v4 && may_be_a_node(*v4) ? v4 : std::nullopt;
}

struct Bound {
  sa_family_t family = 0;
  in_addr v4{};
};

// Where the kernel has bound a socket. By system calls: what other preloaded libraries take for a
// socket (rsockets) is none of these.
std::optional<Bound> bound_of(int fd) {
  sockaddr_in6 bound{};
  socklen_t size = sizeof bound;
  if (::syscall(SYS_getsockname, fd, &bound, &size) != 0) return std::nullopt;
  std::optional<in_addr> v4 = v4_of(bound);
  if (bound.sin6_family == AF_INET6 && bytes_of(bound) == V6Bytes{}) v4 = in_addr{INADDR_ANY};
  if (!v4) return std::nullopt;
  return Bound{bound.sin6_family, *v4};
}

// A socket whose own address the kernel has still to choose.
std::optional<Bound> bound_to_any(int fd) {
  const auto bound = bound_of(fd);
  return bound && bound->v4.s_addr == INADDR_ANY ? bound : std::nullopt;
}

// Binds a socket to an address, whose port the kernel chooses when it connects: so it may be one
// that others connect from.
bool bind_to(int fd, sa_family_t family, const in_addr& v4) {
  sockaddr_in6 here{};
  if (family == AF_INET) {
    const sockaddr_in four = without_port(v4);
    std::memcpy(&here, &four, sizeof four);
  } else {
    V6Bytes bytes = v4.s_addr == INADDR_ANY ? V6Bytes{} : kMapped;
    std::memcpy(&bytes[kV4InV6], &v4, sizeof v4);
    here.sin6_family = AF_INET6;
    std::memcpy(&here.sin6_addr, bytes.data(), bytes.size());
  }
  return ::syscall(SYS_bind, fd, &here, sizeof here) == 0;
}
void set_port_later(int fd, int later) {
  (void)::syscall(SYS_setsockopt, fd, SOL_IP, IP_BIND_ADDRESS_NO_PORT, &later, sizeof later);
}

// [descriptor] its socket was bound here: perhaps it is another file's by now. Those above stay
// bound.
std::array<std::atomic<bool>, 65536> g_bound_here;

std::atomic<bool>* bound_here(int fd) {
  const bool known = fd >= 0 && static_cast<std::size_t>(fd) < g_bound_here.size();
  return known ? &g_bound_here[static_cast<std::size_t>(fd)] : nullptr;
}

void bind_before_connect(int fd, const sockaddr* to, socklen_t length) {
  const auto peer = peer_of(to, length);
  if (!peer) return;
  const int before = errno;
  const auto bound = bound_to_any(fd);
  const auto own = address_beside(*peer);
  if (own && bound) {  // what has a port keeps its address: the kernel says EINVAL
    set_port_later(fd, 1);
    const bool done = bind_to(fd, bound->family, *own);
    if (!done) set_port_later(fd, 0);
    if (std::atomic<bool>* const here = bound_here(fd)) *here = done;
  }
  errno = before;
}

// A socket that is not connected, or not any more, goes elsewhere as if it were new. The kernel
// says EINVAL of one that is.
void unbind(int fd) {
  std::atomic<bool>* const here = bound_here(fd);
  if (here == nullptr || !*here) return;
  const int before = errno;
  const auto bound = bound_of(fd);
  if (bound && may_be_a_node(bound->v4) && bind_to(fd, bound->family, {INADDR_ANY})) {
    set_port_later(fd, 0);
    *here = false;
  }
  errno = before;
}

// The address that a datagram to a peer has to come from, where the kernel would take another.
std::optional<in_addr> source_of_datagram(int fd, const void* to, socklen_t length) {
  const auto peer = peer_of(to, length);
  if (!peer) return std::nullopt;
  const int before = errno;
  int type = 0;
  socklen_t size = sizeof type;
  std::optional<in_addr> own;
  if (bound_to_any(fd) && ::syscall(SYS_getsockopt, fd, SOL_SOCKET, SO_TYPE, &type, &size) == 0 &&
      type == SOCK_DGRAM)
    own = address_beside(*peer);
  errno = before;
  return own;
}

ssize_t send_next(int fd, const msghdr* message, int flags) {
  static const auto real = next<ssize_t (*)(int, const msghdr*, int)>("sendmsg");
  return real(fd, message, flags);
}

// Sends it from an address, which control data name (ip(7)): the socket stays as it is. A socket of
// IPv6 takes them, too, for a peer of IPv4.
ssize_t send_from(const in_addr& own, int fd, msghdr message, int flags) {
  alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(sizeof(in_pktinfo))> control{};
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  cmsghdr* const header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = IPPROTO_IP;
  header->cmsg_type = IP_PKTINFO;
  header->cmsg_len = CMSG_LEN(sizeof(in_pktinfo));
  in_pktinfo info{};
  info.ipi_spec_dst = own;
  std::memcpy(CMSG_DATA(header), &info, sizeof info);
  return send_next(fd, &message, flags);
}

// Whether a message says where it goes and leaves open where it comes from.
std::optional<in_addr> source_of_message(int fd, const msghdr& message) {
  // Who sends control data may say there where it comes from.
  if (message.msg_controllen != 0) return std::nullopt;
  return source_of_datagram(fd, message.msg_name, message.msg_namelen);
}

}  // namespace

}  // namespace hca

using namespace hca;

extern "C" {

int connect(int fd, const sockaddr* to, socklen_t length) {
  static const auto real = next<int (*)(int, const sockaddr*, socklen_t)>("connect");
  unbind(fd);
  bind_before_connect(fd, to, length);
  const int result = real(fd, to, length);
  const bool connected = result == 0 && to != nullptr && to->sa_family != AF_UNSPEC;
  if (!connected) unbind(fd);
  return result;
}

ssize_t sendmsg(int fd, const msghdr* message, int flags) {
  if (message == nullptr) return send_next(fd, message, flags);
  const auto own = source_of_message(fd, *message);
  if (!own) return send_next(fd, message, flags);
  return send_from(*own, fd, *message, flags);
}

// Messages go one by one where one of them needs an address. As the kernel's: how many have gone,
// or why the first has not.
int sendmmsg(int fd, mmsghdr* messages, unsigned count, int flags) {
  using Send = int (*)(int, mmsghdr*, unsigned, int);
  static const auto real = next<Send>("sendmmsg");
  const std::size_t most = messages != nullptr ? std::min<std::size_t>(count, UIO_MAXIOV) : 0;
  const std::span list(messages, most);
  const auto needs_address = [fd](const mmsghdr& one) {
    return source_of_message(fd, one.msg_hdr).has_value();
  };
  if (std::none_of(list.begin(), list.end(), needs_address)) {
    return real(fd, messages, count, flags);
  }
  int sent = 0;
  for (mmsghdr& one : list) {
    const ssize_t bytes = sendmsg(fd, &one.msg_hdr, flags);
    if (bytes < 0) return sent != 0 ? sent : -1;
    one.msg_len = static_cast<unsigned>(bytes);
    ++sent;
  }
  return sent;
}

ssize_t sendto(int fd, const void* bytes, size_t count, int flags, const sockaddr* to,
               socklen_t length) {
  using Send = ssize_t (*)(int, const void*, size_t, int, const sockaddr*, socklen_t);
  static const auto real = next<Send>("sendto");
  const auto own = source_of_datagram(fd, to, length);
  if (!own) return real(fd, bytes, count, flags, to, length);
  iovec piece = {const_cast<void*>(bytes), count};
  msghdr message{};
  message.msg_name = const_cast<sockaddr*>(to);
  message.msg_namelen = length;
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  return send_from(*own, fd, message, flags);
}

void freeifaddrs(ifaddrs* list) noexcept {
  static const auto real = next<void (*)(ifaddrs*)>("freeifaddrs");
  real(without_nodes(list));
}

int getifaddrs(ifaddrs** list) noexcept {
  static const auto real = next<int (*)(ifaddrs**)>("getifaddrs");
  const NotCancelled to_its_end;
  if (const int error = real(list); error != 0) return error;
  if (append_nodes(list)) return 0;
  freeifaddrs(*list);
  errno = ENOMEM;
  return -1;
}

int ioctl(int fd, unsigned long request, ...) noexcept {
  static const auto real = next<int (*)(int, unsigned long, void*)>("ioctl");
  va_list more;
  va_start(more, request);
  void* const argument = va_arg(more, void*);
  va_end(more);
  const int result = real(fd, request, argument);
  if (result == -1 && errno == ENOTTY) {
    if (const auto answered = ask_umad(fd, request, argument)) return *answered;
    errno = ENOTTY;
  }
  if (result == 0 || errno != ENODEV || !is_answered(request)) return result;
  if (answer(request, *static_cast<ifreq*>(argument))) return 0;
  errno = ENODEV;
  return -1;
}

unsigned if_nametoindex(const char* name) noexcept {
  static const auto real = next<unsigned (*)(const char*)>("if_nametoindex");
  if (const unsigned index = real(name); index != 0) return index;
  if (const auto found = find_interface(name)) {
    return kFirstIndex + static_cast<unsigned>(found->number);
  }
  errno = ENODEV;
  return 0;
}

char* if_indextoname(unsigned index, char* name) noexcept {
  static const auto real = next<char* (*)(unsigned, char*)>("if_indextoname");
  if (char* const known = real(index, name)) return known;
  if (index >= kFirstIndex && index - kFirstIndex < own_addresses().size()) {
    const std::string mine = name_of(index - kFirstIndex);
    std::copy_n(mine.c_str(), mine.size() + 1, name);
    return name;
  }
  errno = ENXIO;
  return nullptr;
}

}  // extern "C"
