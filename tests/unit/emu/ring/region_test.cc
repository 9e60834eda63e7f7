// Regions: what is sealed stays sealed, what is outside is never handed out.
#include "emu/ring/region.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>

namespace {

using emu::Access;
using emu::Offset;
using emu::Region;
using emu::UniqueFd;

TEST(Region, SizeCannotChange) {
  Region region = *Region::create("sealed", 8192);
  EXPECT_NE(ftruncate(region.fd(), 4096), 0);
  EXPECT_NE(ftruncate(region.fd(), 16384), 0);
}

TEST(Region, TwoMappingsShareBytes) {
  Region ours = *Region::create("shared", 4096);
  Region theirs = *Region::map(UniqueFd(dup(ours.fd())), 4096, Access::read_write);
  ours.data()[100] = std::byte{42};
  EXPECT_EQ(theirs.data()[100], std::byte{42});
  EXPECT_NE(ours.data(), theirs.data());
}

TEST(Region, OffsetsAreChecked) {
  Region region = *Region::create("offsets", 4096);
  EXPECT_NE(region.at(Offset<std::uint64_t>{0}), nullptr);
  EXPECT_NE(region.at(Offset<std::uint64_t>{4088}), nullptr);
  EXPECT_EQ(region.at(Offset<std::uint64_t>{4092}), nullptr);  // not aligned
  EXPECT_EQ(region.at(Offset<std::uint64_t>{4096}), nullptr);
  EXPECT_EQ(region.at(Offset<std::uint64_t>{4088}, 2), nullptr);
  EXPECT_NE(region.at(Offset<std::uint64_t>{0}, 512), nullptr);
  EXPECT_EQ(region.at(Offset<std::uint64_t>{0}, 513), nullptr);
  EXPECT_EQ(region.at(Offset<std::uint64_t>{8}, ~std::size_t{0}), nullptr);  // would overflow
  EXPECT_EQ(region.at(Offset<std::uint64_t>{~std::uint64_t{7}}), nullptr);
}

TEST(Region, UnsealedOrSmallOrForeignMemoryIsRefused) {
  UniqueFd unsealed(memfd_create("unsealed", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(ftruncate(unsealed.get(), 4096), 0);
  EXPECT_FALSE(Region::map(std::move(unsealed), 4096, Access::read_only));
  Region small = *Region::create("small", 4096);
  const auto refused = Region::map(UniqueFd(dup(small.fd())), 8192, Access::read_only);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("4096"), std::string::npos);
  EXPECT_FALSE(Region::map(UniqueFd(open("/dev/null", O_RDONLY)), 1, Access::read_only));
  EXPECT_FALSE(Region::map(UniqueFd(), 1, Access::read_only));
  EXPECT_FALSE(Region::create("nothing", 0));
}

TEST(Region, ReadOnlyDescriptorCannotBeMappedWritable) {
  Region region = *Region::create("page", 4096);
  region.data()[0] = std::byte{7};
  UniqueFd read_only = *region.reopen_read_only();
  EXPECT_FALSE(Region::map(UniqueFd(dup(read_only.get())), 4096, Access::read_write));
  Region view = *Region::map(std::move(read_only), 4096, Access::read_only);
  EXPECT_EQ(view.data()[0], std::byte{7});
}

TEST(Region, SealedWritesLeaveTheOwnersMapping) {
  Region region = *Region::create("page", 4096);
  ASSERT_TRUE(region.seal_writes());
  region.data()[0] = std::byte{9};
  EXPECT_FALSE(Region::map(UniqueFd(dup(region.fd())), 4096, Access::read_write));
  Region view = *Region::map(UniqueFd(dup(region.fd())), 4096, Access::read_only);
  EXPECT_EQ(view.data()[0], std::byte{9});
}

TEST(Region, MoveLeavesNothingBehind) {
  Region a = *Region::create("move", 4096);
  std::byte* const data = a.data();
  Region b = std::move(a);
  EXPECT_FALSE(a);  // NOLINT(bugprone-use-after-move): that is the question
  EXPECT_EQ(b.data(), data);
  a = std::move(b);
  EXPECT_EQ(a.data(), data);
}

TEST(RegionLayout, PiecesStartOnCacheLines) {
  emu::RegionLayout layout;
  const auto first = layout.add<std::uint32_t>();
  const auto second = layout.add<std::uint64_t>(100);
  const auto third = layout.add_bytes(10, 4096);
  EXPECT_EQ(first.bytes, 0u);
  EXPECT_EQ(second.bytes, 64u);
  EXPECT_EQ(third, 4096u);
  EXPECT_EQ(layout.bytes(), 8192u);
}

}  // namespace
