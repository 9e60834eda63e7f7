// The scheme of docs/congestion.md, as it stands there, does what the docs say.
#include <gtest/gtest.h>

#include "hca/host/congestion.h"

namespace hca {
std::unique_ptr<CongestionControl> make_few(const CongestionOptions& options);
}  // namespace hca

namespace {

TEST(Example, AtMostFourPacketsToADestination) {
  hca::CongestionOptions options;
  options.quadrant_of.resize(3);
  const auto few = hca::make_few(options);
  EXPECT_EQ(few->groups(), 3);
  for (int i = 0; i < 4; ++i) {
    ASSERT_TRUE(few->may_send(1, 0));
    EXPECT_EQ(few->handed_on(1, 40, 0), 1);
  }
  EXPECT_FALSE(few->may_send(1, 0));
  EXPECT_TRUE(few->may_send(2, 0));
  few->came_back(1, 10);
  EXPECT_TRUE(few->may_send(1, 10));
}

}  // namespace
