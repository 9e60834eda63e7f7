#include "hca/daemon/hosts.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>

#include "hca/daemon/cm_service.h"
#include "hca/daemon/options.h"

namespace hca {

emu::Result<void> write_hosts(const std::string& path, const emu::Config& config) {
  const std::string fresh = path + ".new";
  std::ofstream file(fresh);
  const std::vector<std::uint32_t> addresses = node_addresses(config);
  for (std::size_t n = 0; n < addresses.size(); ++n)
    file << address_text(addresses[n]) << '\t' << config.nodes[n].name << '\n';
  file.close();
  if (!file || std::rename(fresh.c_str(), path.c_str()) != 0)
    return emu::fail("{}: {}", path, std::strerror(errno));
  return {};
}

}  // namespace hca
