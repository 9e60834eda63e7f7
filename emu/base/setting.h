// A key of a cluster's file with its value, as text: what two hosts compare.
#pragma once

#include <string>

namespace emu {

struct Setting {
  std::string key;    // "network.packet_size"
  std::string value;  // as the file has it
};

}  // namespace emu
