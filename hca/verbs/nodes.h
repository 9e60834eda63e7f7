// Which nodes this program is on. `flitnet exec n0,n1` names several: a host with several HCAs.
#pragma once

#include <string>
#include <vector>

namespace hca {

// The sockets of their hcads: kNodeSocketVariable, separated by ':'. Empty: on no node.
std::vector<std::string> node_sockets();
// What a folder of the run directory has for them: <run>/<folder>/<names>. Empty: on no node.
std::string run_folder(const char* folder);

}  // namespace hca
