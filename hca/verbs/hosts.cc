// Programs name their peers as on a real cluster: ibv_rc_pingpong n0. The calls that look up a
// host's name, in front of the C library's: a node's name becomes its address; any other name is
// the C library's business. What the nodes are called hcad has written down, as /etc/hosts would.
#include <arpa/inet.h>
#include <netdb.h>
#include <strings.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "hca/verbs/hosts.h"
#include "hca/verbs/next.h"
#include "hca/verbs/nodes.h"
#include "hca/verbs/not_cancelled.h"

namespace hca {

namespace {

constexpr int kLineMax = 128;  // an address and a name of 31 characters
using AddressRoom = std::array<char, kLineMax>;

// Of the node that this program is on, or of the first of several; empty: it is on none.
std::string hosts_path() {
  const std::string folder = run_folder("nodes");
  return folder.empty() ? folder : folder.substr(0, folder.find(',', folder.rfind('/'))) + "/hosts";
}

// As for the C library: a dot at the end says that a name is whole, and letters are large or small.
std::string_view without_dot(std::string_view name) {
  return name.substr(0, name.size() - (name.ends_with('.') ? 1 : 0));
}
bool same_but_case(std::string_view one, std::string_view other) {
  return one.size() == other.size() && ::strncasecmp(one.data(), other.data(), one.size()) == 0;
}

// The address of the node of that name, in `room`, or the name itself. Two names may differ in no
// more than large and small letters: the one that is written so comes first.
const char* address_of(const char* name, AddressRoom& room) {
  if (name == nullptr) return name;
  const NotCancelled to_its_end;
  const std::string path = hosts_path();
  std::FILE* file = path.empty() ? nullptr : std::fopen(path.c_str(), "re");
  if (file == nullptr) return name;
  const std::string_view asked = without_dot(name);
  const char* found = name;
  AddressRoom line;
  for (bool exactly = false; !exactly && std::fgets(line.data(), kLineMax, file) != nullptr;) {
    char* const tab = std::strchr(line.data(), '\t');
    if (tab == nullptr) continue;
    tab[1 + std::strcspn(tab + 1, "\n")] = '\0';
    *tab = '\0';
    exactly = asked == tab + 1;
    if (!exactly && (found != name || !same_but_case(asked, tab + 1))) continue;
    room = line;
    found = room.data();
  }
  std::fclose(file);
  return found;
}

// Answers tell the name that was asked for, as those from /etc/hosts do.

// `name` is there as long as the answer.
template <class Ask>
hostent* by_name(const char* host, AddressRoom& name, Ask ask) {
  AddressRoom room;
  const char* const address = address_of(host, room);
  hostent* const found = ask(address);
  if (found == nullptr || address == host) return found;
  std::memmove(name.data(), host, std::strlen(host) + 1);  // it may be of the last answer
  found->h_name = name.data();
  return found;
}

// Of the caller's room the end is for the name.
template <class Ask>
int by_name_in(const char* host, std::span<char> text, hostent** result, int* error, Ask ask) {
  AddressRoom room;
  const char* const address = address_of(host, room);
  if (address == host) return ask(host, text.size());
  const std::size_t bytes = std::strlen(host) + 1;
  if (text.size() < bytes) {
    *result = nullptr;
    *error = NETDB_INTERNAL;
    return errno = ERANGE;
  }
  const auto name = text.last(bytes);
  const int failed = ask(address, text.size() - bytes);
  if (failed != 0 || *result == nullptr) return failed;
  std::memcpy(name.data(), host, bytes);
  (*result)->h_name = name.data();
  return 0;
}

// Who asks for numbers only gets no name's address.
bool numbers_only(const addrinfo* hints) {
  return hints != nullptr && (hints->ai_flags & AI_NUMERICHOST) != 0;
}

}  // namespace

std::vector<in_addr> own_addresses() {
  const std::string folder = run_folder("nodes");
  std::vector<in_addr> addresses;
  for (std::size_t begin = folder.rfind('/') + 1; begin != 0 && begin < folder.size();) {
    const std::size_t end = std::min(folder.find(',', begin), folder.size());
    const std::string name = folder.substr(begin, end - begin);
    AddressRoom room;
    in_addr address{};  // of a node that has none its name is left, which is no address
    if (::inet_pton(AF_INET, address_of(name.c_str(), room), &address) == 1)
      addresses.push_back(address);
    begin = end + 1;
  }
  return addresses;
}

}  // namespace hca

using namespace hca;

extern "C" {

int flitnet_getaddrinfo(const char* host, const char* service, const addrinfo* hints,
                        addrinfo** found) __asm__("getaddrinfo");
hostent* flitnet_gethostbyname(const char* host) __asm__("gethostbyname");
hostent* flitnet_gethostbyname2(const char* host, int family) __asm__("gethostbyname2");
int flitnet_gethostbyname_r(const char* host, hostent* found, char* text, std::size_t size,
                            hostent** result, int* error) __asm__("gethostbyname_r");
int flitnet_gethostbyname2_r(const char* host, int family, hostent* found, char* text,
                             std::size_t size, hostent** result,
                             int* error) __asm__("gethostbyname2_r");

int flitnet_getaddrinfo(const char* host, const char* service, const addrinfo* hints,
                        addrinfo** found) {
  static const auto real = next<decltype(&flitnet_getaddrinfo)>("getaddrinfo");
  AddressRoom room;
  const char* const address = numbers_only(hints) ? host : address_of(host, room);
  const int error = real(address, service, hints, found);
  if (error != 0 || address == host || (*found)->ai_canonname == nullptr) return error;
  char* const name = ::strdup(host);  // freeaddrinfo() frees it
  if (name == nullptr) {
    ::freeaddrinfo(*found);
    return EAI_MEMORY;
  }
  std::free(std::exchange((*found)->ai_canonname, name));
  return 0;
}

hostent* flitnet_gethostbyname(const char* host) {
  static const auto real = next<decltype(&flitnet_gethostbyname)>("gethostbyname");
  static AddressRoom name;
  return by_name(host, name, real);
}

hostent* flitnet_gethostbyname2(const char* host, int family) {
  static const auto real = next<decltype(&flitnet_gethostbyname2)>("gethostbyname2");
  static AddressRoom name;
  return by_name(host, name, [&](const char* address) { return real(address, family); });
}

int flitnet_gethostbyname_r(const char* host, hostent* found, char* text, std::size_t size,
                            hostent** result, int* error) {
  static const auto real = next<decltype(&flitnet_gethostbyname_r)>("gethostbyname_r");
  const auto ask = [&](const char* address, std::size_t room) {
    return real(address, found, text, room, result, error);
  };
  return by_name_in(host, {text, size}, result, error, ask);
}

int flitnet_gethostbyname2_r(const char* host, int family, hostent* found, char* text,
                             std::size_t size, hostent** result, int* error) {
  static const auto real = next<decltype(&flitnet_gethostbyname2_r)>("gethostbyname2_r");
  const auto ask = [&](const char* address, std::size_t room) {
    return real(address, family, found, text, room, result, error);
  };
  return by_name_in(host, {text, size}, result, error, ask);
}

}  // extern "C"
