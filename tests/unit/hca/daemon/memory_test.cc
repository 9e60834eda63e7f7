// A client's memory by the kernel's calls: here the client is this process itself.
#include "hca/daemon/memory.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <utility>
#include <vector>

namespace {
std::vector<std::pair<const void*, std::size_t>> g_written;  // our side of each, in their order
}

// In place of the C library's.
extern "C" ssize_t process_vm_writev(pid_t pid, const iovec* local, unsigned long local_count,
                                     const iovec* remote, unsigned long remote_count,
                                     unsigned long flags) noexcept {
  for (unsigned long i = 0; i < local_count; ++i) {
    g_written.emplace_back(local[i].iov_base, local[i].iov_len);
  }
  return ::syscall(SYS_process_vm_writev, pid, local, local_count, remote, remote_count, flags);
}

namespace hca {
namespace {

constexpr std::size_t kPage = 4096;
constexpr ClientId kClient = 3;

class ProcessMemoryTest : public testing::Test {
 protected:
  void SetUp() override {
    void* mapped =
        ::mmap(nullptr, kPages * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(mapped, MAP_FAILED);
    theirs_ = static_cast<std::uint8_t*>(mapped);
    for (std::size_t i = 0; i < kPages; ++i)
      std::memset(theirs_ + i * kPage, 0x10 + static_cast<int>(i), kPage);
    memory_.attach(kClient, ::getpid());
  }
  void TearDown() override { ::munmap(theirs_, kPages * kPage); }
  MemoryPiece piece(std::size_t ours, std::size_t from, std::size_t length) {
    return {ours_.data() + ours, reinterpret_cast<std::uint64_t>(theirs_ + from),
            static_cast<std::uint32_t>(length), kClient};
  }

  static constexpr std::size_t kPages = 8;
  std::uint8_t* theirs_ = nullptr;
  std::array<std::uint8_t, kPages * kPage> ours_{};
  ProcessMemory memory_;
};

// Packets of one message are neighbours at the client and lie anywhere here.
TEST_F(ProcessMemoryTest, NeighboursGoWhereEachBelongs) {
  const std::array pieces = {piece(3 * kPage, 100, 1000), piece(0, 1100, 5000),
                             piece(7000, 6100, 1), piece(2 * kPage, 5 * kPage, 700)};
  ASSERT_EQ(memory_.read(pieces), pieces.size());
  for (const MemoryPiece& one : pieces)
    EXPECT_EQ(std::memcmp(one.local, reinterpret_cast<const void*>(one.remote), one.length), 0);
  ours_.fill(0xee);
  ASSERT_EQ(memory_.write(pieces), pieces.size());
  EXPECT_EQ(theirs_[99], 0x10);
  EXPECT_EQ(theirs_[100], 0xee);
  EXPECT_EQ(theirs_[6100], 0xee);
  EXPECT_EQ(theirs_[6101], 0x11);
}

TEST_F(ProcessMemoryTest, AFaultAmongNeighboursFailsThePieceInWhichItIs) {
  ASSERT_EQ(::mprotect(theirs_ + 3 * kPage, kPage, PROT_NONE), 0);
  const std::array pieces = {piece(0, 0, kPage), piece(kPage, kPage, kPage + 500),
                             piece(3 * kPage, 2 * kPage + 500, kPage),  // its end faults
                             piece(4 * kPage, 3 * kPage + 500, 2 * kPage)};
  EXPECT_EQ(memory_.read(pieces), 2U);
  EXPECT_EQ(memory_.write(pieces), 2U);
  EXPECT_EQ(ours_[kPage], 0x11);
  EXPECT_FALSE(memory_.gone(kClient));
}

// Programs poll the last bytes. A copy of many bytes may write them in any order (x86: stores of
// one string operation), so the last word of a piece is a copy of its own, behind the rest.
TEST_F(ProcessMemoryTest, TheLastBytesOfAPieceAreCopiedLast) {
  const std::array pieces = {piece(0, 0, 2048), piece(2048, 2048, 1001), piece(kPage, 3050, 3),
                             piece(2 * kPage, kPage, 4), piece(3 * kPage, 2 * kPage, 0)};
  g_written.clear();
  ASSERT_EQ(memory_.write(pieces), pieces.size());
  std::vector<std::pair<const void*, std::size_t>> expected;
  const auto copied = [&](std::size_t ours, std::size_t length) {
    expected.emplace_back(ours_.data() + ours, length);
  };
  copied(0, 2040);
  copied(2040, 8);
  copied(2048, 1000);
  copied(3048, 1);
  copied(kPage, 2);
  copied(kPage + 2, 1);
  copied(2 * kPage, 4);
  copied(3 * kPage, 0);
  EXPECT_EQ(g_written, expected);
}

TEST_F(ProcessMemoryTest, AnotherClientsMemoryIsItsOwn) {
  std::array pieces = {piece(0, 0, 10), piece(10, 10, 10)};
  pieces[1].client = kClient + 1;  // not attached
  EXPECT_EQ(memory_.read(pieces), 1U);
  EXPECT_TRUE(memory_.gone(kClient + 1));
}

}  // namespace
}  // namespace hca
