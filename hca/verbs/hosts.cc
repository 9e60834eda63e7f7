// Programs name their peers as on a real cluster: ibv_rc_pingpong n0. The calls that look up a
// host's name, in front of the C library's: a node's name becomes its address; any other name is
// the C library's business. What the nodes are called hcad has written down, as /etc/hosts would.
#include <arpa/inet.h>
#include <netdb.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <string>

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

// The address of the node of that name, in `room`, or the name itself.
const char* address_of(const char* name, AddressRoom& room) {
  if (name == nullptr) return name;
  const NotCancelled to_its_end;
  const std::string path = hosts_path();
  std::FILE* file = path.empty() ? nullptr : std::fopen(path.c_str(), "re");
  if (file == nullptr) return name;
  const char* found = name;
  while (found == name && std::fgets(room.data(), kLineMax, file) != nullptr) {
    char* const tab = std::strchr(room.data(), '\t');
    if (tab == nullptr) continue;
    tab[1 + std::strcspn(tab + 1, "\n")] = '\0';
    *tab = '\0';
    if (std::strcmp(tab + 1, name) == 0) found = room.data();
  }
  std::fclose(file);
  return found;
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

#define FLITNET_BY_HOST(result, name, parameters, arguments)              \
  FLITNET_IN_FRONT(result, name, parameters, arguments, AddressRoom room; \
                   host = address_of(host, room))

FLITNET_BY_HOST(int, getaddrinfo,
                (const char* host, const char* service, const addrinfo* hints, addrinfo** found),
                (host, service, hints, found))
FLITNET_BY_HOST(hostent*, gethostbyname, (const char* host), (host))
FLITNET_BY_HOST(hostent*, gethostbyname2, (const char* host, int family), (host, family))
FLITNET_BY_HOST(int, gethostbyname_r,
                (const char* host, hostent* found, char* text, std::size_t size, hostent** result,
                 int* error),
                (host, found, text, size, result, error))
FLITNET_BY_HOST(int, gethostbyname2_r,
                (const char* host, int family, hostent* found, char* text, std::size_t size,
                 hostent** result, int* error),
                (host, family, found, text, size, result, error))
