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

}  // namespace hca
