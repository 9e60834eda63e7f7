// Pages that a program shares with us so that its memory needs no system call: a part of a memfd,
// mapped here from map() to the end of the object. Made and kept for a client's memory regions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

namespace hca {

class SharedMemory {
 public:
  SharedMemory() = default;
  // [offset, offset + length) of a memfd of ordinary pages that cannot shrink; nothing where that
  // is not to be had: then the kernel copies. `client_bytes`: what is mapped of this client, kept
  // here; outlives us.
  static SharedMemory map(int fd, std::uint64_t offset, std::uint64_t length,
                          std::uint64_t& client_bytes);
  ~SharedMemory();
  SharedMemory(SharedMemory&& other) noexcept { swap(other); }
  SharedMemory& operator=(SharedMemory&& other) noexcept {
    SharedMemory(std::move(other)).swap(*this);
    return *this;
  }

  std::uint8_t* start() const { return start_; }  // null: there is nothing

 private:
  void swap(SharedMemory& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    std::swap(start_, other.start_);
    std::swap(client_bytes_, other.client_bytes_);
  }

  void* data_ = nullptr;
  std::size_t bytes_ = 0;
  std::uint8_t* start_ = nullptr;
  std::uint64_t* client_bytes_ = nullptr;
};

}  // namespace hca
