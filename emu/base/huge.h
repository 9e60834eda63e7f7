// Memory for large tables that are visited all over in every cycle: in huge pages where the kernel
// gives them on request (transparent_hugepage: madvise), else in ordinary ones. An allocator for
// std::vector.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <new>

namespace emu {

template <class T>
struct HugePages {
  using value_type = T;
  static constexpr std::size_t kHugeBytes = 2 << 20;

  HugePages() = default;
  template <class U>
  HugePages(const HugePages<U>&) {}

  T* allocate(std::size_t count) {
    const std::size_t bytes = count * sizeof(T);
    void* memory = ::operator new(bytes, alignment(bytes));
    if (bytes >= kHugeBytes) madvise(memory, bytes, MADV_HUGEPAGE);  // a wish: refused is well
    return static_cast<T*>(memory);
  }
  void deallocate(T* memory, std::size_t count) {
    ::operator delete(memory, alignment(count * sizeof(T)));
  }
  bool operator==(const HugePages&) const { return true; }

 private:
  static std::align_val_t alignment(std::size_t bytes) {
    return std::align_val_t{bytes >= kHugeBytes ? kHugeBytes : alignof(T)};
  }
};

}  // namespace emu
