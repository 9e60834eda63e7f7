// ibv_advise_mr: what of which memory is brought in, and what is refused with which errno.
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>

#include "tests/unit/hca/verbs/node.h"

namespace {

using test::Node;
using test::Program;

constexpr ibv_advise_mr_advice kRead = IBV_ADVISE_MR_ADVICE_PREFETCH;
constexpr ibv_advise_mr_advice kWrite = IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE;
constexpr ibv_advise_mr_advice kNoFault = IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT;
constexpr int kWritable = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ON_DEMAND;

class Advise : public testing::Test {
 protected:
  Advise() : length_(2 * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE))) {
    bytes = static_cast<std::uint8_t*>(
        ::mmap(nullptr, length_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  }
  ~Advise() override {
    for (ibv_mr* mr : regions_) EXPECT_EQ(ibv_dereg_mr(mr), 0);
    if (bytes != nullptr) release();
  }
  void release() {
    EXPECT_EQ(::munmap(bytes, length_), 0);
    bytes = nullptr;
  }
  void allow(int protection) { EXPECT_EQ(::mprotect(bytes, length_, protection), 0); }
  // A part of a region of all bytes.
  ibv_sge part_of(int access) {
    ibv_mr* const mr = ibv_reg_mr(program.pd, bytes, length_, access);
    EXPECT_NE(mr, nullptr);
    regions_.push_back(mr);
    return {reinterpret_cast<std::uint64_t>(bytes) + 8, 100, mr->lkey};
  }
  // What it answers, the same whether it is to be done at once or not.
  static int advise(ibv_pd* pd, ibv_advise_mr_advice advice, ibv_sge part) {
    const int error = ibv_advise_mr(pd, advice, 0, &part, 1);
    EXPECT_EQ(ibv_advise_mr(pd, advice, IBV_ADVISE_MR_FLAG_FLUSH, &part, 1), error);
    return error;
  }
  int advise(ibv_advise_mr_advice advice, const ibv_sge& part) const {
    return advise(program.pd, advice, part);
  }
  Node node;
  Program program;
  std::uint8_t* bytes = nullptr;

 private:
  std::size_t length_;
  std::vector<ibv_mr*> regions_;
};

// Memory is named as in work requests: by the region's own addresses.
TEST_F(Advise, IsOfTheRegionsAddresses) {
  constexpr std::uint64_t kIova = 1U << 20;
  ibv_mr* const mr = ibv_reg_mr_iova(program.pd, bytes, 4096, kIova, kWritable);
  ASSERT_NE(mr, nullptr);
  EXPECT_EQ(advise(kWrite, {kIova + 8, 100, mr->lkey}), 0);
  EXPECT_EQ(advise(kWrite, {kIova + 4000, 97, mr->lkey}), EFAULT);
  EXPECT_EQ(advise(kWrite, {reinterpret_cast<std::uint64_t>(bytes), 100, mr->lkey}), EFAULT);
  EXPECT_EQ(advise(kWrite, {kIova, 100, mr->lkey + 1}), EFAULT);
  EXPECT_EQ(ibv_dereg_mr(mr), 0);
}

TEST_F(Advise, IsOfRegionsPagedOnDemand) {
  const ibv_sge pinned = part_of(IBV_ACCESS_LOCAL_WRITE);
  for (const auto advice : {kRead, kWrite, kNoFault}) {
    EXPECT_EQ(advise(advice, part_of(kWritable)), 0) << advice;
    EXPECT_EQ(advise(advice, pinned), EINVAL) << advice;
  }
}

TEST_F(Advise, ToWriteIsForWhoMay) {
  const ibv_sge part = part_of(IBV_ACCESS_ON_DEMAND);
  EXPECT_EQ(advise(kRead, part), 0);
  EXPECT_EQ(advise(kNoFault, part), 0);
  EXPECT_EQ(advise(kWrite, part), EPERM);
}

TEST_F(Advise, OfAnotherDomainIsNotPermitted) {
  ibv_pd* const other = ibv_alloc_pd(program.context);
  ASSERT_NE(other, nullptr);
  EXPECT_EQ(advise(other, kRead, part_of(kWritable)), EPERM);
  EXPECT_EQ(ibv_dealloc_pd(other), 0);
}

TEST_F(Advise, OfAWindowIsInvalid) {
  ibv_mw* const mw = ibv_alloc_mw(program.pd, IBV_MW_TYPE_2);
  ASSERT_NE(mw, nullptr);
  EXPECT_EQ(advise(kWrite, {reinterpret_cast<std::uint64_t>(bytes), 8, mw->rkey}), EINVAL);
  EXPECT_EQ(ibv_dealloc_mw(mw), 0);
}

// What the region may be used for, its memory need not allow yet.
TEST_F(Advise, MemoryMustAllowIt) {
  if (::madvise(bytes, 0, MADV_POPULATE_WRITE) != 0) GTEST_SKIP() << "of Linux 5.14";
  const ibv_sge part = part_of(kWritable);
  allow(PROT_READ);
  EXPECT_EQ(advise(kRead, part), 0);
  EXPECT_EQ(advise(kWrite, part), EPERM);
  allow(PROT_NONE);
  EXPECT_EQ(advise(kNoFault, part), 0);
  EXPECT_EQ(advise(kRead, part), EFAULT);
  release();
  EXPECT_EQ(advise(kRead, part), EFAULT);
}

TEST_F(Advise, OfUnknownKindsIsRefused) {
  ibv_sge part = part_of(kWritable);
  const auto advise_as = [&](int advice, std::uint32_t flags, std::uint32_t count = 1) {
    return ibv_advise_mr(program.pd, static_cast<ibv_advise_mr_advice>(advice), flags, &part,
                         count);
  };
  EXPECT_EQ(advise_as(kRead, 2), EINVAL);
  EXPECT_EQ(advise_as(kRead, IBV_ADVISE_MR_FLAG_FLUSH | 1U << 31), EINVAL);
  EXPECT_EQ(advise_as(kNoFault + 1, 0), EOPNOTSUPP);
  EXPECT_EQ(advise_as(kRead, 0, 0), EINVAL);
}

}  // namespace
