// Multicast groups of the subnet's administration: who joins and leaves, and what is told of it.
#include "emu/base/guid.h"
#include "tests/unit/fabric/subnet/subnet_world.h"

namespace fabric {
namespace {

constexpr std::uint16_t kMemberRecord = 0x38;
constexpr std::uint8_t kDelete = 0x15;
constexpr std::size_t kRecordAt = 56;
constexpr unsigned kOk = 0, kNoResources = 0x0100, kInvalid = 0x0200, kNoRecords = 0x0300;
constexpr unsigned kTooMany = 0x0400, kInvalidGid = 0x0500, kTooFew = 0x0600;
// Bits of the mask: MGID, PortGID, JoinState; and what a new group needs beside.
constexpr std::uint64_t kJoin = 1 << 0 | 1 << 1 | 1 << 16;
constexpr std::uint64_t kCreate = kJoin | 1 << 2 | 1 << 6 | 1 << 7 | 1 << 12 | 1 << 13;
constexpr unsigned kPortMtu = 4, kLinkRate = 16, kPathLife = 18;  // 2048 bytes, 100 Gb/s, a second

class GroupsTest : public SubnetTest {
 protected:
  // As perftest asks (its client's group): for a port, by default the asker's own.
  static MadPayload request(std::uint8_t method, emu::NodeId port, std::uint64_t mask = kCreate) {
    MadPayload mad = question(emu::kClassSubnetAdmin, kMemberRecord, 0, method);
    set_number(&mad[48], 8, mask);
    std::uint8_t* record = &mad[kRecordAt];
    set_number(record, 8, 0xff01000000'02c985);
    set_number(record + 8, 8, 1);
    set_number(record + 16, 8, emu::kGidPrefix);
    set_number(record + 24, 8, emu::guid_of(port));
    set_number(record + 32, 4, 0x11111111);
    set_number(record + 40, 2, 0xffff);
    record[48] = 1;
    return mad;
  }
  static MadPayload with(MadPayload mad, std::size_t at, int bytes, std::uint64_t value) {
    set_number(&mad[kRecordAt + at], bytes, value);
    return mad;
  }
  static MadPayload with_group(const MadPayload& mad, unsigned number) {
    return with(mad, 8, 8, number);
  }
  static MadPayload join(emu::NodeId port, std::uint64_t mask = kCreate) {
    return request(emu::kMadSet, port, mask);
  }
  static MadPayload leave(emu::NodeId port) { return request(kDelete, port); }
  static MadPayload trusted(MadPayload mad) {
    set_number(&mad[36], 8, 1);
    return mad;
  }

  unsigned said(const MadPayload& mad, emu::NodeId source) {
    const auto answer = ask(mad, source, 1);
    EXPECT_TRUE(answer);
    if (answer) last_ = *answer;
    return answer ? status(*answer) : ~0U;
  }
  std::uint64_t told(std::size_t at, int bytes) const {
    return number(&last_[kRecordAt + at], bytes);
  }
  std::size_t records(const MadPayload& asked) {
    EXPECT_EQ(said(asked, 8), kOk);
    EXPECT_EQ(number(&last_[44], 2), 7U) << "words of eight bytes to the next";
    return (number(&last_[32], 4) - 20) / 56;
  }
  std::size_t members() { return records(trusted(request(emu::kMadGetTable, 0, 0))); }
  std::size_t groups() { return records(request(emu::kMadGetTable, 0, 0)); }

  MadPayload last_{};
};

TEST_F(GroupsTest, AGroupIsMadeByWhoJoinsFirst) {
  ASSERT_EQ(said(join(2), 2), kOk);
  EXPECT_EQ(last_[3], 0x81);
  EXPECT_EQ(answered_.bytes, emu::kMadBytes);
  EXPECT_EQ(told(8, 8), 1U);
  EXPECT_EQ(told(24, 8), emu::guid_of(2));
  EXPECT_EQ(told(32, 4), 0x11111111U);
  EXPECT_EQ(told(36, 2), 0xc001U);
  EXPECT_EQ(told(38, 1), 2U << 6 | kPortMtu);
  EXPECT_EQ(told(40, 2), 0xffffU);
  EXPECT_EQ(told(42, 1), 2U << 6 | kLinkRate);
  EXPECT_EQ(told(43, 1), 2U << 6 | kPathLife);
  EXPECT_EQ(told(44, 4), 1U) << "SL 0, no flow label, one hop";
  EXPECT_EQ(told(48, 1), 0x11U) << "scope of the MGID, full member";
  EXPECT_EQ(told(49, 1), 0U);
  // Who comes later need not know more than its name.
  ASSERT_EQ(said(join(3, kJoin), 3), kOk);
  EXPECT_EQ(told(32, 4), 0x11111111U);
  EXPECT_EQ(told(36, 2), 0xc001U);
  EXPECT_EQ(members(), 2U);
  EXPECT_EQ(groups(), 1U);
}

// The groups of rdma_cm have the same LIDs: 239.1.1.1 of a program with its own way to join.
TEST_F(GroupsTest, ItsLidFollowsFromItsGid) {
  MadPayload mad = with(join(0), 0, 8, 0xff124001'ffff0000);
  mad = with(mad, 8, 8, 0x0f010101);
  ASSERT_EQ(said(mad, 0), kOk);
  EXPECT_EQ(told(36, 2), 0xc000U + 0x0f010101 % 0x3ffe);
  EXPECT_EQ(
      emu::group_lid_of({0xff, 0x12, 0x40, 0x01, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0x0f, 1, 1, 1}),
      told(36, 2));
}

TEST_F(GroupsTest, AGidOfZerosIsMadeHere) {
  const MadPayload mad = with(with(join(0), 0, 8, 0), 8, 8, 0);
  ASSERT_EQ(said(mad, 0), kOk);
  EXPECT_EQ(told(0, 4), 0xff12a01bU) << "transient, link local, made by the administration";
  const std::uint64_t first = told(8, 8), lid = told(36, 2);
  ASSERT_EQ(said(mad, 0), kOk);
  EXPECT_NE(told(8, 8), first);
  EXPECT_NE(told(36, 2), lid);
  EXPECT_EQ(groups(), 2U);
  ASSERT_EQ(said(with(with(join(0, kCreate | 1 << 15), 0, 8, 0), 8, 8, 0), 0), kOk);
  EXPECT_EQ(told(0, 4), 0xff10a01bU) << "scope as it was asked for";
}

TEST_F(GroupsTest, WhatCannotBeIsRefused) {
  for (const unsigned bit : {0U, 1U, 16U}) {
    EXPECT_EQ(said(join(0, kCreate & ~(1ULL << bit)), 0), kTooFew) << bit;
    EXPECT_EQ(said(request(kDelete, 0, kJoin & ~(1ULL << bit)), 0), kTooFew) << bit;
  }
  for (const unsigned bit : {2U, 6U, 7U, 12U, 13U})
    EXPECT_EQ(said(join(0, kCreate & ~(1ULL << bit)), 0), kTooFew) << "a new group's " << bit;
  struct Case {
    std::size_t at;
    int bytes;
    std::uint64_t value;
    unsigned expected;
  };
  const Case cases[] = {
      {0, 1, 0xfe, kInvalid},                     // no group's GID
      {0, 2, 0xff21, kInvalid},                   // reserved flags
      {0, 4, 0xff12a01b, kInvalid},               // as if the administration had made it
      {16, 8, 1, kInvalidGid},                    // another subnet's
      {24, 8, 1, kInvalid},                       // nobody's
      {24, 8, emu::switch_guid_of(0), kInvalid},  // no QP is there
      {40, 2, 0x8001, kInvalid},
      {40, 2, 0x0000, kInvalid},  // other partitions
      {48, 1, 0, kInvalid},
      {48, 1, 2, kInvalid},
      {48, 1, 4, kInvalid},  // not full
  };
  for (const Case& one : cases)
    EXPECT_EQ(said(with(join(0), one.at, one.bytes, one.value), 0), one.expected)
        << one.at << " " << one.value;
  away_[1] = true;
  EXPECT_EQ(said(join(1), 0), kInvalid) << "away";
  EXPECT_EQ(said(question(emu::kClassSubnetAdmin, kMemberRecord), 0), kNoRecords);
  EXPECT_EQ(groups(), 0U);
  EXPECT_EQ(said(question(emu::kClassSubnetAdmin, kMemberRecord, 0, 0x13), 0), 0x0cU);
}

TEST_F(GroupsTest, ItsMtuRateAndLifetimeAreAsTheyWereAskedFor) {
  enum { greater, less, exactly, best };
  struct Case {
    std::size_t at;
    unsigned bit, selector, value;
    int expected;  // -1: there is no such group
  };
  const Case cases[] = {
      {38, 4, greater, 3, kPortMtu},
      {38, 4, greater, 4, -1},
      {38, 4, less, 4, 3},
      {38, 4, less, 1, -1},
      {38, 4, exactly, 2, 2},
      {38, 4, exactly, 5, -1},
      {38, 4, best, 0, kPortMtu},
      {42, 8, greater, 7, kLinkRate},
      {42, 8, greater, 16, -1},
      {42, 8, less, 16, 9},
      {42, 8, less, 17, kLinkRate},
      {42, 8, exactly, 7, 7},
      {42, 8, exactly, 17, -1},
      {42, 8, exactly, 1, -1},
      {43, 10, exactly, 18, kPathLife},
      {43, 10, greater, 18, -1},
      {43, 10, less, 19, kPathLife},
  };
  for (const Case& one : cases) {
    SCOPED_TRACE(testing::Message() << one.at << " " << one.selector << " " << one.value);
    const std::uint64_t asked = one.selector << 6 | one.value;
    const MadPayload mad = with(join(0, kCreate | 3U << one.bit), one.at, 1, asked);
    EXPECT_EQ(said(mad, 0), one.expected < 0 ? kInvalid : kOk);
    if (one.expected < 0) continue;
    EXPECT_EQ(told(one.at, 1), 2U << 6 | static_cast<unsigned>(one.expected));
    ASSERT_EQ(said(leave(0), 0), kOk);
  }
}

TEST_F(GroupsTest, WhoJoinsAgreesWithTheGroup) {
  ASSERT_EQ(said(join(0), 0), kOk);
  EXPECT_EQ(said(with(join(1), 32, 4, 5), 1), kInvalid) << "Q_Key";
  EXPECT_EQ(said(with(join(1), 39, 1, 5), 1), kInvalid) << "TClass";
  EXPECT_EQ(said(with(join(1), 44, 1, 0x50), 1), kInvalid) << "SL";
  EXPECT_EQ(said(with(join(1), 45, 1, 5), 1), kInvalid) << "flow label";
  EXPECT_EQ(said(with(join(1), 40, 2, 0x8001), 1), kInvalid) << "P_Key";
  EXPECT_EQ(said(with(join(1, kJoin | 3 << 4), 38, 1, kPortMtu), 1), kInvalid) << "MTU: greater";
  EXPECT_EQ(said(with(join(1, kJoin), 32, 4, 5), 1), kOk) << "not in the mask";
  EXPECT_EQ(said(with(join(2), 40, 2, 0x7fff), 2), kOk) << "a limited member of the partition";
}

TEST_F(GroupsTest, WhoLeavesWasInIt) {
  EXPECT_EQ(said(leave(0), 0), kInvalid) << "no group";
  ASSERT_EQ(said(join(0), 0), kOk);
  EXPECT_EQ(said(leave(1), 1), kInvalid) << "no member";
  EXPECT_EQ(said(leave(0), 1), kInvalid) << "not its own";
  EXPECT_EQ(said(with(leave(0), 48, 1, 3), 0), kInvalid) << "more than it is";
  EXPECT_EQ(said(with(leave(0), 48, 1, 0), 0), kInvalid);
  EXPECT_EQ(said(with(leave(0), 16, 8, 1), 0), kInvalidGid);
  ASSERT_EQ(said(with(join(0), 48, 1, 2), 0), kOk) << "a non-member, too";
  EXPECT_EQ(told(48, 1), 0x13U);
  ASSERT_EQ(said(with(leave(0), 48, 1, 2), 0), kOk);
  EXPECT_EQ(told(48, 1), 0x11U) << "what is left";
  ASSERT_EQ(said(leave(0), 0), kOk);
  EXPECT_EQ(last_[3], 0x95);
  EXPECT_EQ(told(36, 2), 0xc001U);
  EXPECT_EQ(told(48, 1), 0x10U);
  EXPECT_EQ(said(leave(0), 0), kInvalid) << "not twice";
  EXPECT_EQ(groups(), 0U);
}

TEST_F(GroupsTest, AGroupEndsWithItsLastFullMember) {
  ASSERT_EQ(said(join(0), 0), kOk);
  ASSERT_EQ(said(with(join(1), 48, 1, 2), 1), kOk);
  ASSERT_EQ(said(with(join(2), 48, 1, 8), 2), kOk) << "full, but only sends";
  EXPECT_EQ(members(), 3U);
  ASSERT_EQ(said(leave(0), 0), kOk);
  EXPECT_EQ(members(), 2U);
  ASSERT_EQ(said(with(leave(2), 48, 1, 8), 2), kOk);
  EXPECT_EQ(members(), 0U);
  EXPECT_EQ(said(with(leave(1), 48, 1, 2), 1), kInvalid);
}

TEST_F(GroupsTest, AProxyJoinsForAnother) {
  ASSERT_EQ(said(join(1), 0), kOk);
  EXPECT_EQ(told(24, 8), emu::guid_of(1));
  EXPECT_EQ(told(49, 1), 0x80U);
  EXPECT_EQ(said(leave(0), 0), kInvalid);
  EXPECT_EQ(said(leave(1), 2), kOk) << "whoever is in the partition";
  ASSERT_EQ(said(join(1), 1), kOk);
  EXPECT_EQ(said(with(join(1), 48, 1, 2), 0), kInvalid) << "its own affair";
}

TEST_F(GroupsTest, ANodeThatWasAwayIsInNoGroup) {
  ASSERT_EQ(network_->port_of(1), 0) << "the link that counts here";
  ASSERT_EQ(said(join(1), 1), kOk);
  ASSERT_EQ(said(join(2), 2), kOk);
  ASSERT_EQ(said(with_group(join(1), 7), 1), kOk);
  ++downs_[network_->router_of(1)];
  EXPECT_EQ(members(), 1U);
  EXPECT_EQ(groups(), 1U);
  EXPECT_EQ(said(leave(1), 1), kInvalid);
  EXPECT_EQ(said(join(1), 1), kOk);
  EXPECT_EQ(members(), 2U);
}

TEST_F(GroupsTest, OnlyTheTrustedHearWhoIsInIt) {
  ASSERT_EQ(said(join(1), 1), kOk);
  ASSERT_EQ(said(with(join(2), 48, 1, 3), 2), kOk);
  ASSERT_EQ(said(with_group(join(2), 7), 2), kOk);
  EXPECT_EQ(members(), 3U);
  EXPECT_EQ(groups(), 2U);
  EXPECT_EQ(told(24, 8), 0U);
  EXPECT_EQ(told(48, 1), 0x10U);
  const auto table = [](std::uint64_t mask, emu::NodeId port) {
    return trusted(request(emu::kMadGetTable, port, mask));
  };
  EXPECT_EQ(records(table(1 << 0, 0)), 2U) << "MGID";
  EXPECT_EQ(records(table(1 << 1, 2)), 2U) << "PortGID";
  EXPECT_EQ(records(table(1 << 1, 3)), 0U);
  EXPECT_EQ(records(with(table(1 << 3, 0), 36, 2, 0xc007)), 1U) << "MLID";
  EXPECT_EQ(records(with(table(1 << 16, 0), 48, 1, 3)), 1U) << "JoinState";
  EXPECT_EQ(records(with(table(1 << 15, 0), 48, 1, 0x20)), 0U) << "scope";
  EXPECT_EQ(records(with(table(1 << 17, 0), 49, 1, 0x80)), 0U) << "ProxyJoin";
  EXPECT_EQ(said(request(emu::kMadGet, 0, 1 << 0), 0), kOk);
  EXPECT_EQ(told(36, 2), 0xc001U);
  EXPECT_EQ(said(request(emu::kMadGet, 0, 0), 0), kTooMany);
  EXPECT_EQ(said(with_group(request(emu::kMadGet, 0, 1 << 0), 9), 0), kNoRecords);
}

TEST_F(GroupsTest, ANodeHasSoManyAndNoMore) {
  for (unsigned group = 1; group <= kMembershipsMax; ++group)
    ASSERT_EQ(said(with_group(join(0), group), 0), kOk) << group;
  EXPECT_EQ(said(with_group(join(0), 1000), 0), kNoResources);
  EXPECT_EQ(said(with_group(join(1), 1000), 0), kNoResources) << "nor for another";
  EXPECT_EQ(said(with_group(join(0), 1), 0), kOk) << "it is in it already";
  EXPECT_EQ(said(with_group(join(1), 1000), 1), kOk) << "others are not disturbed";
  ASSERT_EQ(said(with_group(leave(0), 5), 0), kOk);
  EXPECT_EQ(said(with_group(join(0), 1000), 0), kOk);
  EXPECT_EQ(said(with_group(join(0), 5), 0), kNoResources);
  // What ended with its group is given back.
  ASSERT_EQ(said(with_group(with(join(2), 48, 1, 2), 1), 2), kOk);
  ASSERT_EQ(said(with_group(leave(0), 1), 0), kOk);
  for (unsigned group = 100; group < 100 + kMembershipsMax; ++group)
    ASSERT_EQ(said(with_group(join(2), group), 2), kOk) << group;
  // 64 of node 0, less one that left; node 1's and those of node 2: 128 in segments of 72.
  MadPayload all = trusted(request(emu::kMadGetTable, 0, 0));
  EXPECT_EQ(records(all), 72U);
  EXPECT_EQ(last_[26] & 7, 3) << "first, active";
  set_number(&all[28], 4, 2);
  EXPECT_EQ(records(all), 56U);
  EXPECT_EQ(last_[26] & 7, 5) << "last, active";
}

TEST_F(GroupsTest, ThatThereAreGroupsIsSaid) {
  ASSERT_EQ(said(question(emu::kClassSubnetAdmin, 0x01), 0), kOk);
  EXPECT_EQ(told(2, 2), 1U << 9) << "UD multicast";
  EXPECT_EQ(told(4, 4) >> 5, 1U << 12) << "full members that only send";
  EXPECT_EQ(told(4, 4) & 0x1f, 16U);
}

}  // namespace
}  // namespace fabric
