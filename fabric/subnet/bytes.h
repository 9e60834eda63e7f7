// Fields of management datagrams: big endian, at offsets in bytes. Private to fabric/subnet.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace fabric {

// Where a datagram has what its attribute says; written into zeroes.
class Fields {
 public:
  explicit Fields(std::span<std::uint8_t> bytes) : bytes_(bytes) {}
  void put8(std::size_t at, std::uint64_t value) const { put(at, value, 1); }
  void put16(std::size_t at, std::uint64_t value) const { put(at, value, 2); }
  void put24(std::size_t at, std::uint64_t value) const { put(at, value, 3); }
  void put32(std::size_t at, std::uint64_t value) const { put(at, value, 4); }
  void put64(std::size_t at, std::uint64_t value) const { put(at, value, 8); }
  Fields from(std::size_t at) const { return Fields(bytes_.subspan(at)); }
  std::span<std::uint8_t> bytes() const { return bytes_; }

 private:
  void put(std::size_t at, std::uint64_t value, std::size_t size) const {
    for (std::size_t i = size; i-- > 0; value >>= 8)
      bytes_[at + i] = static_cast<std::uint8_t>(value);
  }
  std::span<std::uint8_t> bytes_;
};

inline std::uint64_t get(std::span<const std::uint8_t> bytes, std::size_t at, std::size_t size) {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < size; ++i) value = value << 8 | bytes[at + i];
  return value;
}

}  // namespace fabric
