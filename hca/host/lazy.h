// Memory of rings that may be large and are seldom full: a page of it is there once something was
// written to it, and not before. What is small is there from the start.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstring>
#include <new>
#include <type_traits>
#include <utility>

namespace hca {

// An array that begins as zero bytes, whatever T says of its members. std::bad_alloc: no memory.
template <class T>
class LazyArray {
  static_assert(std::is_trivially_copyable_v<T> && std::is_trivially_destructible_v<T>);

 public:
  // From here on pages come when they are needed; below, a page fault in the first round of a ring
  // would cost more than the memory is worth.
  static constexpr std::size_t kLazyBytes = std::size_t{256} << 10;

  LazyArray() = default;
  explicit LazyArray(std::size_t count) : bytes_(count * sizeof(T)) {
    if (bytes_ == 0) return;
    void* memory = nullptr;
    if (lazy()) {
      memory = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      if (memory == MAP_FAILED) throw std::bad_alloc();
    } else {
      memory = std::memset(::operator new(bytes_), 0, bytes_);
    }
    data_ = static_cast<T*>(memory);
  }
  LazyArray(LazyArray&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  LazyArray& operator=(LazyArray&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~LazyArray() {
    if (data_ == nullptr) return;
    if (lazy()) {
      ::munmap(data_, bytes_);
    } else {
      ::operator delete(data_);
    }
  }

  T& operator[](std::size_t index) { return data_[index]; }

 private:
  bool lazy() const { return bytes_ >= kLazyBytes; }

  T* data_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace hca
