// Frames, tags and records: what is well formed passes unchanged, anything else is refused.
#include "emu/wire/frame.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <vector>

#include "emu/base/prng.h"
#include "emu/packet/mad.h"
#include "emu/wire/key.h"
#include "emu/wire/record.h"
#include "tests/unit/emu/wire/seed.h"
#include "tests/unit/sanitized.h"

namespace emu {
namespace {

DataKey data_key(Seal seal = Seal::chacha20_poly1305) {
  return {random_key(), static_cast<std::uint32_t>(seal)};
}

std::vector<std::byte> data_frame(std::size_t payload, const DataKey& key, std::uint64_t number) {
  std::vector<std::byte> bytes(kFrameOverhead + payload, std::byte{0x5a});
  FrameHeader header{};
  header.magic = kFrameMagic;
  header.version = kFrameVersion;
  header.type = FrameType::data;
  header.number = number;
  header.length = static_cast<std::uint16_t>(payload);
  std::memcpy(bytes.data(), &header, sizeof header);
  key.seal(bytes, number);
  return bytes;
}

TEST(Frame, WellFormedPasses) {
  const auto bytes = data_frame(100, data_key(), 7);
  const auto frame = parse_frame(bytes);
  ASSERT_TRUE(frame);
  EXPECT_EQ(frame->header.number, 7u);
  EXPECT_EQ(frame->payload.size(), 100u);
  EXPECT_EQ(frame->payload.data(), bytes.data() + sizeof(FrameHeader));
}

TEST(Frame, EveryTruncationIsRefused) {
  const auto bytes = data_frame(100, data_key(), 7);
  for (std::size_t n = 0; n < bytes.size(); ++n) {
    EXPECT_FALSE(parse_frame(std::span(bytes).first(n))) << n;
  }
}

TEST(Frame, LengthsAndTypesAreChecked) {
  auto bytes = data_frame(100, data_key(), 7);
  const auto with = [&](std::size_t offset, int value) {
    auto changed = bytes;
    changed[offset] = static_cast<std::byte>(value);
    return parse_frame(changed).has_value();
  };
  EXPECT_FALSE(with(0, 'f'));                // magic
  EXPECT_FALSE(with(4, kFrameVersion + 1));  // version
  EXPECT_FALSE(with(5, 0));                  // type
  EXPECT_FALSE(with(5, 6));
  EXPECT_FALSE(with(5, static_cast<int>(FrameType::hello)));  // has another length
  EXPECT_FALSE(with(6, 4));                                   // unknown flag
  EXPECT_FALSE(with(offsetof(FrameHeader, length), 96));
  EXPECT_FALSE(with(offsetof(FrameHeader, length) + 1, 0xff));
  EXPECT_TRUE(with(6, kFlagBye));
  EXPECT_TRUE(with(6, kFlagDeaf));
}

void tag_covers_every_bit(Seal seal) {
  const DataKey key = data_key(seal);
  auto bytes = data_frame(40, key, 7);
  EXPECT_TRUE(key.opens(bytes, 7));
  EXPECT_FALSE(key.opens(bytes, 8));
  EXPECT_FALSE(data_key(seal).opens(bytes, 7));
  for (std::size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    bytes[bit / 8] ^= static_cast<std::byte>(1 << (bit % 8));
    EXPECT_FALSE(key.opens(bytes, 7)) << bit;
    bytes[bit / 8] ^= static_cast<std::byte>(1 << (bit % 8));
  }
}

TEST(Frame, TagCoversEveryBitAndTheNumber) {
  tag_covers_every_bit(Seal::chacha20_poly1305);
  if ((seals_here() & static_cast<std::uint32_t>(Seal::aes256_gcm)) != 0)
    tag_covers_every_bit(Seal::aes256_gcm);
}

TEST(Frame, TheBestSealOfBothIsTaken) {
  EXPECT_EQ(best_seal(3), 2U);
  EXPECT_EQ(best_seal(1), 1U);
  EXPECT_EQ(best_seal(4), 0U);
  EXPECT_EQ(seals_here() & 1U, 1U);
}

TEST(Frame, HandshakeTagCoversTheFrame) {
  const Key key = random_key();
  auto bytes = data_frame(40, data_key(), 7);
  seal_handshake(bytes, key);
  EXPECT_TRUE(opens_handshake(bytes, key));
  bytes[70] ^= std::byte{1};
  EXPECT_FALSE(opens_handshake(bytes, key));
}

TEST(Key, EachUseHasItsOwn) {
  const Key cluster = random_key();
  Handshake agreed{};
  const Key a = session_key(cluster, agreed, 1, KeyUse::to_fabric);
  EXPECT_EQ(a, session_key(cluster, agreed, 1, KeyUse::to_fabric));
  EXPECT_NE(a, session_key(cluster, agreed, 1, KeyUse::to_node));
  EXPECT_NE(a, session_key(cluster, agreed, 2, KeyUse::to_fabric));
  agreed.server_nonce[0] = 1;
  EXPECT_NE(a, session_key(cluster, agreed, 1, KeyUse::to_fabric));
}

class KeyFile : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = testing::TempDir() + "flitnet-key-XXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    dir_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }
  std::string path() const { return dir_ + "/key"; }
  std::string dir_;
};

TEST_F(KeyFile, IsMadeOnceAndReadAgain) {
  const auto made = ensure_key_file(path());
  ASSERT_TRUE(made);
  EXPECT_EQ(*made, *ensure_key_file(path()));
  EXPECT_EQ(*made, *read_key_file(path()));
  struct stat status {};
  ASSERT_EQ(stat(path().c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);
}

TEST_F(KeyFile, SaysWhatIsWrong) {
  EXPECT_NE(read_key_file(path()).error().message.find("No such file"), std::string::npos);
  std::ofstream(path()) << "0123";
  chmod(path().c_str(), 0600);
  EXPECT_NE(read_key_file(path()).error().message.find("shorter"), std::string::npos);
  std::ofstream(path()) << std::string(64, 'x');
  EXPECT_NE(read_key_file(path()).error().message.find("not 64"), std::string::npos);
  std::ofstream(path()) << std::string(64, 'a');
  EXPECT_TRUE(read_key_file(path()));
  chmod(path().c_str(), 0644);
  EXPECT_NE(read_key_file(path()).error().message.find("chmod 600"), std::string::npos);
}

TEST_F(KeyFile, WhatIsNoFileIsNotWaitedFor) {
  ASSERT_EQ(mkfifo(path().c_str(), 0600), 0);
  EXPECT_NE(read_key_file(path()).error().message.find("regular file"), std::string::npos);
  EXPECT_NE(read_key_file(dir_).error().message.find("regular file"), std::string::npos);
}

TxDesc good_tx() {
  return TxDesc{.cookie = 9,
                .launch_cycle = 0,
                .buffer = 0,
                .length = 638,
                .flits = 40,
                .dest = 3,
                .vl_in = 4,
                .vl_out = 5,
                .traffic_class = TrafficClass::real_time,
                .kind = PacketKind::data,
                .vtick = 7};
}

bool parses(const TxDesc& desc, std::size_t packet) {
  std::vector<std::byte> body(sizeof desc + packet);
  std::memcpy(body.data(), &desc, sizeof desc);
  return parse_tx(body).has_value();
}

TEST(Record, TxFieldsAreChecked) {
  const TxDesc good = good_tx();
  EXPECT_TRUE(parses(good, 638));
  EXPECT_FALSE(parses(good, 637));
  EXPECT_FALSE(parses(good, 639));
  const auto refused = [&](auto change) {
    TxDesc bad = good;
    change(bad);
    return !parses(bad, bad.length);
  };
  EXPECT_TRUE(refused([](TxDesc& d) { d.length = 0; }));
  EXPECT_TRUE(refused([](TxDesc& d) { d.length = kPacketBytesMax + 1; }));
  EXPECT_TRUE(refused([](TxDesc& d) { d.flits = 0; }));
  EXPECT_TRUE(refused([](TxDesc& d) { d.dest = kNodesMax; }));
  EXPECT_TRUE(refused([](TxDesc& d) { d.vl_in = 16; }));
  EXPECT_TRUE(refused([](TxDesc& d) { d.vl_out = 16; }));
  EXPECT_TRUE(refused([](TxDesc& d) { d.traffic_class = static_cast<TrafficClass>(3); }));
  EXPECT_TRUE(refused([](TxDesc& d) { d.kind = static_cast<PacketKind>(4); }));
  EXPECT_TRUE(refused([](TxDesc& d) {
    d.kind = PacketKind::probe;
    d.length = sizeof(ProbeBody) - 1;
  }));
  const auto datagram = [](TxDesc& d) {
    d.kind = PacketKind::subnet;
    d.length = kMadPacketBytes;
    d.traffic_class = TrafficClass::control;
  };
  EXPECT_FALSE(refused(datagram));
  EXPECT_TRUE(refused([&](TxDesc& d) { datagram(d), --d.length; }));
  EXPECT_TRUE(refused([&](TxDesc& d) { datagram(d), d.traffic_class = TrafficClass::real_time; }));
}

TEST(Record, EveryVerdictParses) {
  Answer answer{};
  answer.rejected_by = kNoRouter;
  const auto parsed = [&] { return parse_answer(std::as_bytes(std::span(&answer, 1))); };
  for (const Verdict verdict : {Verdict::ack, Verdict::nack, Verdict::again}) {
    answer.verdict = verdict;
    ASSERT_TRUE(parsed()) << static_cast<int>(verdict);
    EXPECT_EQ(parsed()->verdict, verdict);
  }
  answer.verdict = static_cast<Verdict>(3);
  EXPECT_FALSE(parsed());
  answer.verdict = Verdict::ack;
  answer.reserved[4] = 1;
  EXPECT_FALSE(parsed());
}

TEST(Record, RandomBodiesNeverReadOutside) {
  const std::uint64_t seed = test_seed();
  Prng prng(seed);
  constexpr int kBodies = test::kSanitized ? 50'000 : 200'000;
  int accepted = 0;
  for (int i = 0; i < kBodies; ++i) {
    std::vector<std::byte> body(prng.below(200));
    for (auto& b : body) b = static_cast<std::byte>(prng.below(prng.below(4) == 0 ? 256 : 2));
    accepted += parse_tx(body).has_value() + parse_rx(body).has_value() +
                parse_injected(body).has_value() + parse_answer(body).has_value();
  }
  EXPECT_LT(accepted, kBodies) << "seed " << seed;
}

}  // namespace
}  // namespace emu
