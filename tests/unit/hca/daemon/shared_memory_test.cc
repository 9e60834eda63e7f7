// Parts of memfds, mapped and given back, wherever in a page a part begins.
#include "hca/daemon/shared_memory.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cinttypes>
#include <cstdio>
#include <fstream>
#include <string>

#include "emu/ring/fd.h"

namespace hca {
namespace {

constexpr std::size_t kFileBytes = 4 << 20;  // two huge pages

class SharedMemoryTest : public testing::Test {
 protected:
  // A memfd that cannot shrink, all of it mapped here; false: there is none of this kind.
  bool make(unsigned flags) {
    file_ = emu::UniqueFd(::memfd_create("parts", MFD_CLOEXEC | MFD_ALLOW_SEALING | flags));
    if (!file_ || ::ftruncate(file_.get(), kFileBytes) != 0 ||
        ::fcntl(file_.get(), F_ADD_SEALS, F_SEAL_SHRINK) != 0) {
      return false;
    }
    void* data = ::mmap(nullptr, kFileBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file_.get(), 0);
    whole_ = data == MAP_FAILED ? nullptr : static_cast<std::uint8_t*>(data);
    return whole_ != nullptr;
  }
  void TearDown() override {
    if (whole_ != nullptr) ::munmap(whole_, kFileBytes);
  }

  // What this process has mapped of it; neighbours may stand in one line.
  static std::uint64_t mapped_bytes() {
    std::ifstream maps("/proc/self/maps");
    std::uint64_t bytes = 0;
    for (std::string line; std::getline(maps, line);) {
      std::uint64_t start = 0;
      std::uint64_t end = 0;
      if (line.find("memfd:parts") == line.npos ||
          std::sscanf(line.c_str(), "%" SCNx64 "-%" SCNx64, &start, &end) != 2) {
        continue;
      }
      bytes += end - start;
    }
    return bytes;
  }

  void check_part(std::size_t offset, std::size_t length) {
    std::uint64_t client_bytes = 0;
    {
      const SharedMemory part = SharedMemory::map(file_.get(), offset, length, client_bytes);
      ASSERT_NE(part.start(), nullptr);
      EXPECT_GE(client_bytes, length);
      EXPECT_EQ(mapped_bytes(), kFileBytes + client_bytes);
      part.start()[0] = 17;
      part.start()[length - 1] = 18;
      EXPECT_EQ(whole_[offset], length == 1 ? 18 : 17);
      EXPECT_EQ(whole_[offset + length - 1], 18);
    }
    EXPECT_EQ(mapped_bytes(), kFileBytes);
    EXPECT_EQ(client_bytes, 0U);
  }

  emu::UniqueFd file_;
  std::uint8_t* whole_ = nullptr;
};

TEST_F(SharedMemoryTest, APartIsMappedAndGivenBack) {
  ASSERT_TRUE(make(0));
  for (const std::size_t offset : {0U, 5U, 4096U, 1U << 20, (2U << 20) - 1, 3U << 20}) {
    for (const std::size_t length : {1U, 4096U, 1U << 20}) {
      SCOPED_TRACE(testing::Message() << length << " bytes at " << offset);
      check_part(offset, length);
    }
  }
}

// Their owner may punch a hole into them, and where no page is left for it a touch is SIGBUS.
TEST_F(SharedMemoryTest, HugePagesAreNotMapped) {
  if (!make(MFD_HUGETLB)) GTEST_SKIP() << "no huge pages (vm.nr_hugepages)";
  std::uint64_t client_bytes = 0;
  EXPECT_EQ(SharedMemory::map(file_.get(), 0, kFileBytes, client_bytes).start(), nullptr);
  EXPECT_EQ(client_bytes, 0U);
}

}  // namespace
}  // namespace hca
