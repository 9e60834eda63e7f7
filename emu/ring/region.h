// Memory that processes share: an anonymous file (memfd) whose size is sealed, so that a peer
// cannot truncate it under a reader (SIGBUS). Inside it nothing is a pointer: places are Offsets,
// checked once at the crossing by Region::at.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>

#include "emu/base/result.h"
#include "emu/ring/fd.h"

namespace emu {

// A place in a region, in bytes from its start. `T` is what lies there.
template <class T>
struct Offset {
  std::uint64_t bytes = 0;
};

enum class Access : std::uint8_t { read_only, read_write };

// No region of ours is larger; a peer that offers one lies.
inline constexpr std::size_t kRegionBytesMax = std::size_t{4} << 30;

class Region {
 public:
  Region() = default;
  ~Region() { reset(); }
  Region(Region&& other) noexcept;
  Region& operator=(Region&& other) noexcept;
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;

  // A fresh region, zeroed, mapped read-write, size sealed (F_SEAL_SHRINK | F_SEAL_GROW).
  static Result<Region> create(std::string_view name, std::size_t bytes);
  // A region that came from another process. Refused unless it is a memfd whose size is sealed and
  // lies in [bytes_min, kRegionBytesMax].
  static Result<Region> map(UniqueFd fd, std::size_t bytes_min, Access access);
  // An ordinary file of the run directory (metrics, clock page): created or opened and sized.
  static Result<Region> map_file(UniqueFd fd, std::size_t bytes, Access access);

  // From now on nobody can map this region writable; mappings that exist stay. For pages that
  // others only read.
  Result<void> seal_writes();
  // A second descriptor of the same memory that cannot be mapped writable, to hand out.
  Result<UniqueFd> reopen_read_only() const;

  explicit operator bool() const { return data_ != nullptr; }
  std::byte* data() const { return data_; }
  std::size_t size() const { return size_; }
  int fd() const { return fd_.get(); }

  // `count` objects of T at `offset`, or nullptr if any byte of them lies outside or they are not
  // aligned. The only way from an offset to a pointer.
  template <class T>
  T* at(Offset<T> offset, std::size_t count = 1) const {
    return static_cast<T*>(at_bytes(offset.bytes, sizeof(T), count, alignof(T)));
  }
  // The same for memory that is not an array of objects (a ring, packet slots).
  void* at_bytes(std::uint64_t offset, std::size_t size, std::size_t count,
                 std::size_t alignment) const {
    if (offset > size_ || offset % alignment != 0) return nullptr;
    if (count != 0 && size > (size_ - offset) / count) return nullptr;
    return data_ + offset;
  }
  // The descriptor, whose closing leaves the mapping: who maps many regions keeps none of theirs.
  UniqueFd take_fd() { return std::move(fd_); }
  void reset();  // unmaps and closes

 private:
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
  UniqueFd fd_;
};

// Cuts a region into pieces, each on a cache line: first add() them all, then create the region
// with bytes(). Both sides that know the counts come to the same offsets.
class RegionLayout {
 public:
  template <class T>
  Offset<T> add(std::size_t count = 1) {
    return {add_bytes(sizeof(T) * count)};
  }
  std::uint64_t add_bytes(std::size_t bytes, std::size_t alignment = 64) {
    next_ = (next_ + alignment - 1) & ~(std::uint64_t{alignment} - 1);
    const std::uint64_t at = next_;
    next_ += bytes;
    return at;
  }
  std::size_t bytes() const { return (next_ + 4095) & ~std::uint64_t{4095}; }

 private:
  std::uint64_t next_ = 0;
};

}  // namespace emu
