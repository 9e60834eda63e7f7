#include "hca/umad/own_port.h"

#include <gtest/gtest.h>

#include <string>

#include "emu/base/guid.h"

namespace hca {
namespace {

class OwnPortTest : public testing::Test {
 protected:
  OwnPortTest() {
    own.description = "n2 flitnet0";
    own.device.guid = emu::guid_of(2);
    own.link = {400'000'000, 2048, 255};
    own.lid = 3;
    asked[0] = 1;
    asked[emu::kMadClassAt] = emu::kClassSubnetDirected;
    asked[emu::kMadClassVersionAt] = 1;
    asked[emu::kMadMethodAt] = emu::kMadGet;
    for (const std::size_t at : {32, 33, 34, 35}) asked[at] = 0xff;  // no LIDs
    asked[100] = 77;                                                 // of no meaning
  }
  // The attribute's bytes, or none.
  std::string ask(emu::SubnetAttribute attribute, std::uint32_t modifier = 0) {
    asked[emu::kMadAttributeAt + 1] = static_cast<std::uint8_t>(attribute);
    for (std::size_t i = 0; i < 4; ++i)
      asked[emu::kMadModifierAt + i] = static_cast<std::uint8_t>(modifier >> (24 - 8 * i));
    const auto answer = answer_of(own, asked);
    if (!answer) return "";
    EXPECT_EQ((*answer)[emu::kMadMethodAt], emu::kMadGetResponse);
    EXPECT_EQ((*answer)[emu::kMadStatusAt], 0x80) << "on its way back";
    EXPECT_EQ((*answer)[emu::kMadStatusAt + 1], 0);
    return {answer->begin() + 64, answer->begin() + 128};
  }
  OwnPort own;
  emu::Mad asked{};
};

TEST_F(OwnPortTest, SaysWhoItIsAndThatItsLinkIsDown) {
  EXPECT_EQ(ask(emu::kNodeDescription).substr(0, 13), std::string("n2 flitnet0\0", 13));
  EXPECT_EQ(ask(emu::kNodeInfo)[3], 1) << "ports";
  EXPECT_EQ(ask(emu::kGuidInfo).substr(0, 8), std::string("\0\x02\xc9\x03\0\0\0\x03", 8));
  EXPECT_EQ(ask(emu::kPkeyTable).substr(0, 4), std::string("\xff\xff\0\0", 4));
  for (const std::uint32_t port : {0U, 1U, 0x80000000U, 0x80000001U}) {
    const std::string info = ask(emu::kPortInfo, port);
    ASSERT_EQ(info.size(), 64U);
    EXPECT_EQ(info.substr(16, 4), std::string("\0\x03\0\x01", 4)) << "its LID, the manager's";
    EXPECT_EQ(info[32] & 15, 1) << "Down";
    EXPECT_EQ(info[33] >> 4 & 15, 2) << "Polling";
  }
}

TEST_F(OwnPortTest, WhatItDoesNotKnowItLeaves) {
  EXPECT_EQ(ask(emu::kPortInfo, 2), "");
  EXPECT_EQ(ask(emu::kPortInfo, 0x10001), "");
  EXPECT_EQ(ask(emu::kGuidInfo, 1), "");
  EXPECT_EQ(ask(emu::kPkeyTable, 1), "");
  EXPECT_EQ(ask(emu::kSwitchInfo), "");
  EXPECT_EQ(ask(emu::kVlArbitrationTable, 1U << 16), "");
}

TEST_F(OwnPortTest, WhatGoesFurtherIsForOthers) {
  EXPECT_NE(ask(emu::kNodeInfo), "");
  for (const std::size_t at : {std::size_t{7}, std::size_t{32}, std::size_t{35}, emu::kMadClassAt,
                               emu::kMadMethodAt, emu::kMadClassVersionAt}) {
    ++asked[at];
    EXPECT_EQ(ask(emu::kNodeInfo), "") << at;
    --asked[at];
  }
}

}  // namespace
}  // namespace hca
