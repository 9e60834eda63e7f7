// ibv_rereg_mr: what is not to change stays what it was at the registration, rights included.
#include <sys/mman.h>

#include <cerrno>

#include "tests/unit/hca/verbs/node.h"

namespace {

using test::Node;
using test::Program;

constexpr std::size_t kRegionBytes = 4096;

class Rereg : public testing::Test {
 protected:
  ~Rereg() override {
    for (void* page : pages_) ::munmap(page, kRegionBytes);
  }
  void* page(int protection) {
    pages_.push_back(::mmap(nullptr, kRegionBytes, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    return pages_.back();
  }
  // The errno, or 0.
  static int change(ibv_mr* mr, int flags, ibv_pd* pd, void* address, int access = 0) {
    errno = 0;
    const int status = ibv_rereg_mr(mr, flags, pd, address, kRegionBytes, access);
    EXPECT_EQ(status, errno == 0 ? 0 : IBV_REREG_MR_ERR_INPUT);
    return errno;
  }
  // Moves it to another domain, and sees that it counts there and not in the old one.
  void move(ibv_mr* mr) {
    ibv_pd* const other = ibv_alloc_pd(program.context);
    ASSERT_NE(other, nullptr);
    ASSERT_EQ(change(mr, IBV_REREG_MR_CHANGE_PD, other, nullptr), 0);
    EXPECT_EQ(mr->pd, other);
    EXPECT_EQ(ibv_dealloc_pd(other), EBUSY);
    EXPECT_EQ(ibv_dereg_mr(mr), 0);
    EXPECT_EQ(ibv_dealloc_pd(other), 0);
  }
  Node node;
  Program program;

 private:
  std::vector<void*> pages_;
};

TEST_F(Rereg, AWritableRegionStaysWritable) {
  ibv_mr* const mr =
      ibv_reg_mr(program.pd, page(PROT_READ | PROT_WRITE), kRegionBytes, Program::kAccess);
  ASSERT_NE(mr, nullptr);
  void* const fixed = page(PROT_READ);
  constexpr int kBoth = IBV_REREG_MR_CHANGE_TRANSLATION | IBV_REREG_MR_CHANGE_ACCESS;
  EXPECT_EQ(change(mr, IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, fixed), EFAULT);
  EXPECT_EQ(change(mr, kBoth, nullptr, fixed, IBV_ACCESS_REMOTE_READ), 0);
  EXPECT_EQ(change(mr, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, Program::kAccess), EFAULT);
  EXPECT_EQ(change(mr, IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, page(PROT_READ)), 0);
  EXPECT_EQ(ibv_dereg_mr(mr), 0);
}

// What is not there yet may be when it is used, in another domain, too, and in another place.
TEST_F(Rereg, ARegionPagedOnDemandStaysOne) {
  constexpr int kOnDemand = Program::kAccess | IBV_ACCESS_ON_DEMAND;
  ibv_mr* const mr = ibv_reg_mr(program.pd, page(PROT_NONE), kRegionBytes, kOnDemand);
  ASSERT_NE(mr, nullptr);
  EXPECT_EQ(change(mr, IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, page(PROT_NONE)), 0);
  move(mr);
  ibv_mr* const everything = ibv_reg_mr(program.pd, nullptr, SIZE_MAX, kOnDemand);
  ASSERT_NE(everything, nullptr);
  EXPECT_EQ(everything->length, SIZE_MAX);
  move(everything);
}

// Memory that a program has given back since is not looked at where only the domain changes.
TEST_F(Rereg, ADomainIsChangedWithoutALookAtMemory) {
  void* const bytes = page(PROT_READ | PROT_WRITE);
  ibv_mr* const mr = ibv_reg_mr(program.pd, bytes, kRegionBytes, Program::kAccess);
  ASSERT_NE(mr, nullptr);
  ASSERT_EQ(::mprotect(bytes, kRegionBytes, PROT_NONE), 0);
  move(mr);
}

// As Linux has it: a region of device memory is made and ended, and nothing else.
TEST_F(Rereg, DeviceMemoryStaysAsItIs) {
  ibv_alloc_dm_attr attributes{kRegionBytes, 0, 0};
  ibv_dm* const dm = ibv_alloc_dm(program.context, &attributes);
  ASSERT_NE(dm, nullptr);
  ibv_mr* const mr = ibv_reg_dm_mr(program.pd, dm, 0, kRegionBytes,
                                   IBV_ACCESS_ZERO_BASED | IBV_ACCESS_LOCAL_WRITE);
  ASSERT_NE(mr, nullptr);
  void* const elsewhere = page(PROT_READ | PROT_WRITE);
  EXPECT_EQ(change(mr, IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, elsewhere), EINVAL);
  EXPECT_EQ(change(mr, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, Program::kAccess), EINVAL);
  ibv_pd* const other = ibv_alloc_pd(program.context);
  EXPECT_EQ(change(mr, IBV_REREG_MR_CHANGE_PD, other, nullptr), EINVAL);
  EXPECT_EQ(mr->pd, program.pd);
  EXPECT_EQ(ibv_dealloc_pd(other), 0);
  EXPECT_EQ(ibv_dereg_mr(mr), 0);
  EXPECT_EQ(ibv_free_dm(dm), 0);
}

}  // namespace
