// Messages of the communication manager: what goes in comes out, at the places that IBA gives them.
#include "hca/cm/mad.h"

#include <gtest/gtest.h>

#include <random>

namespace {

using hca::CmKind;
using hca::CmMessage;

CmMessage example(CmKind kind) {
  CmMessage m;
  m.kind = kind;
  m.life = 0x0a0b0c0d;
  m.local_id = 0x01020304;
  m.remote_id = 0x05060708;
  m.service_id = 0x0000000001061234;
  m.qpn = 0xabcdef;
  m.qkey = 0x01234567;
  m.psn = 0x123456;
  m.reason = kind == CmKind::sidr_rep ? 2 : 28;
  m.rejected = 1;
  m.service_timeout = 21;
  m.ece = {0xabcdef, 0x12345678};
  m.private_data[0] = 0x5a;
  m.private_data[hca::private_bytes(kind) - 1] = 0xa5;
  return m;
}

TEST(CmMad, EveryKindComesBack) {
  for (std::uint16_t kind = 0x10; kind <= 0x18; ++kind) {
    const CmMessage m = example(static_cast<CmKind>(kind));
    const auto back = hca::parse(hca::to_mad(m));
    ASSERT_TRUE(back) << kind;
    EXPECT_EQ(back->kind, m.kind);
    EXPECT_EQ(back->life, m.life);
    EXPECT_EQ(back->local_id, m.local_id);
    EXPECT_EQ(back->private_data, m.private_data) << kind;
    // Parsed once and written again it is the same: nothing that is read is lost.
    EXPECT_EQ(hca::to_mad(*back), hca::to_mad(m)) << kind;
  }
}

TEST(CmMad, ARequestStandsWhereIbaSays) {
  CmMessage m = example(CmKind::req);
  m.responder_resources = 7;
  m.initiator_depth = 9;
  m.retry_count = 5;
  m.rnr_retry_count = 6;
  m.path_mtu = 4;
  m.srq = true;
  m.local_lid = 0x1122;
  const hca::Mad mad = hca::to_mad(m);
  EXPECT_EQ(mad[1], 0x07);  // class CommMgt
  EXPECT_EQ(mad[17], 0x10);
  EXPECT_EQ(mad[20], 0x12);  // attribute modifier: the options of ECE
  EXPECT_EQ(mad[24 + 5], 0xab);
  EXPECT_EQ(mad[24 + 7], 0xef);
  EXPECT_EQ(mad[24 + 14], 0x12);  // low bytes of the service id
  EXPECT_EQ(mad[24 + 32], 0xab);
  EXPECT_EQ(mad[24 + 35], 7);
  EXPECT_EQ(mad[24 + 39], 9);
  EXPECT_EQ(mad[24 + 47] & 7, 5);
  EXPECT_EQ(mad[24 + 50], 0x46);
  EXPECT_EQ(mad[24 + 51] & 8, 8);
  EXPECT_EQ(mad[24 + 52], 0x11);
  EXPECT_EQ(mad[24 + 140], 0x5a);
  EXPECT_EQ(mad[255], 0xa5);
}

TEST(CmMad, NonsenseIsNoMessage) {
  hca::Mad mad = hca::to_mad(example(CmKind::rep));
  for (const std::size_t place : {0u, 1u, 2u, 3u, 16u}) {
    hca::Mad other = mad;
    other[place] ^= 0x40;
    EXPECT_FALSE(hca::parse(other)) << place;
  }
  mad[17] = 0x19;
  EXPECT_FALSE(hca::parse(mad));
  std::mt19937 random(7);  // the fixed seed is the test's
  for (int i = 0; i < 10000; ++i) {
    for (auto& byte : mad) byte = static_cast<std::uint8_t>(random());
    (void)hca::parse(mad);
  }
}

}  // namespace
