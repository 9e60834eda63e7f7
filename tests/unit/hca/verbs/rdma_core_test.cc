// The release of rdma-core is read from the name of the loaded library's file.
#include "hca/verbs/rdma_core.h"

#include <gtest/gtest.h>

namespace {

TEST(RdmaCore, ReleaseOfAFile) {
  EXPECT_EQ(hca::rdma_core_release("/usr/lib/x86_64-linux-gnu/libibverbs.so.1.14.44.0"), 44u);
  EXPECT_EQ(hca::rdma_core_release("libibverbs.so.1.15.61.0"), 61u);
  EXPECT_EQ(hca::rdma_core_release("/x/flitnet/libibverbs.so.1"), 0u);
  EXPECT_EQ(hca::rdma_core_release("/x/libibverbs.so.1.14"), 0u);
  EXPECT_EQ(hca::rdma_core_release("/x/libibverbs.so.1.14.dev"), 0u);
  EXPECT_EQ(hca::rdma_core_release("/x/librdmacm.so.1.3.44.0"), 0u);
  EXPECT_EQ(hca::rdma_core_release(""), 0u);
}

}  // namespace
