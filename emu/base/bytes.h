// A value as the bytes that it is made of, as wires and sockets want it.
#pragma once

#include <cstddef>
#include <span>

namespace emu {

std::span<const std::byte> bytes_of(const auto& value) {
  return std::as_bytes(std::span(&value, 1));
}

}  // namespace emu
