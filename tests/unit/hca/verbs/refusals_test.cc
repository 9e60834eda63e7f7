// What a kernel refuses, by the errno that it says.
#include <cerrno>

#include "tests/unit/hca/verbs/node.h"

namespace {

using test::Node;
using test::Program;

class Refusals : public testing::Test {
 protected:
  // The errno, or 0: there is such a region, and it has ended.
  int register_with(unsigned access) {
    errno = 0;
    ibv_mr* const mr = ibv_reg_mr(program.pd, program.bytes.data(), 64, static_cast<int>(access));
    if (mr == nullptr) return errno;
    EXPECT_EQ(ibv_dereg_mr(mr), 0);
    return 0;
  }
  Node node;
  Program program;
};

// Of rights that only later kernels know this device has none; hints may be anything.
TEST_F(Refusals, RightsThatThereAreNotAreInvalid) {
  EXPECT_EQ(register_with(IBV_ACCESS_REMOTE_WRITE), EINVAL) << "not without LOCAL_WRITE";
  for (unsigned bit = 8; bit < 10; ++bit) EXPECT_EQ(register_with(1U << bit), EOPNOTSUPP) << bit;
  for (unsigned bit = 10; bit < 20; ++bit) EXPECT_EQ(register_with(1U << bit), EINVAL) << bit;
  for (unsigned bit = 20; bit < 30; ++bit) EXPECT_EQ(register_with(1U << bit), 0) << bit;
}

// Who asks for nothing needs no room for it.
TEST_F(Refusals, APollForNothingFindsNothing) {
  EXPECT_EQ(ibv_poll_cq(program.cq, 0, nullptr), 0);
  EXPECT_EQ(ibv_poll_cq(program.cq, 1, nullptr), -EINVAL);
  ibv_wc completion;
  EXPECT_EQ(ibv_poll_cq(program.cq, -1, &completion), -EINVAL);
}

TEST_F(Refusals, AnEntryBehindTheTableOfGidsIsInvalid) {
  ibv_gid_entry entry{};
  EXPECT_EQ(ibv_query_gid_ex(program.context, 1, 0, &entry, 0), 0);
  EXPECT_EQ(ibv_query_gid_ex(program.context, 1, 1, &entry, 0), EINVAL);
}

}  // namespace
