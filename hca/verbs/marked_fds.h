// Which descriptors of a program were opened as one kind of ours: the calls in front of the C
// library's ask for every file, and any other costs one test of a bit.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace hca {

class MarkedFds {
 public:
  static constexpr int kMost = 65536;  // descriptors from here on bear no mark

  static constexpr bool fits(int fd) { return fd >= 0 && fd < kMost; }

  bool has(int fd) const {
    return fits(fd) && (words_[index(fd)].load(std::memory_order_relaxed) & bit(fd)) != 0;
  }
  void set(int fd, bool marked) {
    if (!fits(fd) || has(fd) == marked) return;
    if (marked) {
      words_[index(fd)].fetch_or(bit(fd), std::memory_order_relaxed);
    } else {
      words_[index(fd)].fetch_and(~bit(fd), std::memory_order_relaxed);
    }
  }

 private:
  static constexpr unsigned kBits = 64;
  static std::size_t index(int fd) { return static_cast<std::size_t>(fd) / kBits; }
  static std::uint64_t bit(int fd) {
    return std::uint64_t{1} << (static_cast<unsigned>(fd) % kBits);
  }

  std::array<std::atomic<std::uint64_t>, kMost / kBits> words_{};
};

}  // namespace hca
