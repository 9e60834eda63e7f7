// What an HCA says of itself while it has no link: a datagram by directed route that goes nowhere
// is for the HCA that sends it, whose kernel answers it. While there is a link fabric/subnet does,
// as for every other device. In: such a question. Out: its answer.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "emu/packet/device_info.h"
#include "emu/packet/mad.h"

namespace hca {

struct OwnPort {
  std::string description;
  emu::DeviceInfo device;
  emu::LinkInfo link;
  emu::Lid lid = 0;
};

// Of its description, device, port, GUIDs and partition keys. Nothing: the question goes further,
// or what it asks for is not known without the fabric.
std::optional<emu::Mad> answer_of(const OwnPort& own, const emu::Mad& asked);

}  // namespace hca
