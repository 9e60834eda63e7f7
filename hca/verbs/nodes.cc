#include "hca/verbs/nodes.h"

#include <cstdlib>
#include <string_view>

#include "hca/abi/control.h"

namespace hca {

std::vector<std::string> node_sockets() {
  std::vector<std::string> sockets;
  const char* variable = std::getenv(kNodeSocketVariable);
  std::string_view rest = variable != nullptr ? variable : "";
  while (!rest.empty()) {
    const std::size_t end = rest.find(':');
    if (end != 0) sockets.emplace_back(rest.substr(0, end));
    rest = end == rest.npos ? std::string_view{} : rest.substr(end + 1);
  }
  return sockets;
}

std::string run_folder(const char* folder) {
  const char* run = std::getenv("FLITNET_RUN");
  const char* names = std::getenv("FLITNET_NODE");
  if (run == nullptr || names == nullptr) return {};
  return std::string(run) + "/" + folder + "/" + names;
}

}  // namespace hca
