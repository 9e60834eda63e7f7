// What a fabric tells of its cluster.toml, and what a node makes of it.
#include "emu/wire/terms.h"

#include <gtest/gtest.h>

#include <fmt/core.h>

namespace emu {
namespace {

std::vector<Setting> two_settings(const std::string& a, const std::string& b) {
  return {{"network.a", a}, {"network.b", b}};
}

TEST(Terms, TheFirstThatDiffersIsNamedWithBothValues) {
  const TermsText text = write_terms(two_settings("40", "roce v2"));
  EXPECT_EQ(text.back(), '\0');
  EXPECT_FALSE(disagreement({1, two_settings("40", "roce v2")}, "n1", 1, text));
  const auto second = disagreement({1, two_settings("40", "")}, "n1", 1, text);
  ASSERT_TRUE(second);
  EXPECT_EQ(second->key, "network.b");
  EXPECT_EQ(second->here, "");
  EXPECT_EQ(second->there, "roce v2");
  const auto first = disagreement({1, two_settings("4", "")}, "n1", 1, text);
  ASSERT_TRUE(first);
  EXPECT_EQ(first->key, "network.a");
  const auto node = disagreement({0, two_settings("4", "")}, "n1", 1, text);
  ASSERT_TRUE(node);
  EXPECT_EQ(node->key + ": " + node->here + ", " + node->there, "n1: node 0, node 1");
}

TEST(Terms, WhatHasNoRoomIsComparedAllTheSame) {
  std::vector<Setting> settings;
  for (std::size_t i = 0; i < 20; ++i)
    settings.push_back({fmt::format("key{}", i), std::string(40 * i, 'x')});
  const TermsText text = write_terms(settings);
  EXPECT_EQ(text.back(), '\0');
  EXPECT_FALSE(disagreement({0, settings}, "n0", 0, text));
  for (std::size_t i = 0; i < 20; ++i) {
    auto other = settings;
    other[i].value += 'y';
    const auto found = disagreement({0, other}, "n0", 0, text);
    ASSERT_TRUE(found) << i;
    EXPECT_EQ(found->key, settings[i].key);
    EXPECT_EQ(found->there, i < 2 ? settings[i].value : "another");
  }
}

TEST(Terms, AnyTextIsBorne) {
  TermsText text{};
  EXPECT_TRUE(disagreement({0, two_settings("1", "2")}, "n0", 0, text));
  text.fill('\n');
  EXPECT_TRUE(disagreement({0, two_settings("1", "2")}, "n0", 0, text));
  text.fill('\x1b');
  const auto found = disagreement({0, two_settings("1", "2")}, "n0", 0, text);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->there, std::string(kTermsBytes, '?'));
}

}  // namespace
}  // namespace emu
