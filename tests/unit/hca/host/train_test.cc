// Trains: what they stand for is what would have left packet by packet, whatever the message; and
// those that no HCA of ours makes are dropped or refused.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <vector>

#include "emu/base/prng.h"
#include "emu/packet/build.h"
#include "tests/unit/hca/host/pair.h"
#include "tests/unit/sanitized.h"

namespace {

using hca::WcStatus;
using hca::WrOpcode;
using test::Pair;
using test::PairOptions;

using Bytes = std::vector<std::uint8_t>;

std::span<const std::byte> as_bytes(std::span<const std::uint8_t> bytes) {
  return std::as_bytes(bytes);
}

// Packets with payload, as links would carry them, without their wish for an acknowledgement and
// what differs from run to run: addresses and keys.
class Wire {
 public:
  explicit Wire(Pair& pair) {
    pair.cluster.on_send = [this](const emu::TxDesc& desc, std::span<const std::uint8_t> bytes) {
      take(desc, as_bytes(bytes));
    };
  }
  const std::vector<Bytes>& packets() const { return packets_; }
  std::size_t trains() const { return trains_; }
  std::size_t flits() const { return flits_; }

 private:
  void take(const emu::TxDesc& desc, std::span<const std::byte> bytes) {
    emu::ParsedPacket parsed;
    if (desc.more_packets == 0) {
      ASSERT_EQ(emu::parse_packet(bytes, parsed), emu::ParseStatus::ok);
      if (parsed.payload_bytes > 0) add(bytes);
    } else {
      ++trains_;
      ASSERT_EQ(emu::parse_train(bytes, desc.more_packets + 1U, parsed), emu::ParseStatus::ok);
      std::vector<std::byte> slot(emu::kPacketBytesMax);
      for (std::uint32_t i = 0; i < parsed.packets; ++i)
        add(std::span(slot).first(emu::cut_packet(bytes, parsed, i, slot)));
    }
    if (parsed.payload_bytes > 0) flits_ += desc.flits;
  }
  void add(std::span<const std::byte> packet) {
    emu::ParsedPacket parsed;
    ASSERT_EQ(emu::parse_packet(packet, parsed), emu::ParseStatus::ok);
    const auto* first = reinterpret_cast<const std::uint8_t*>(packet.data());
    packets_.emplace_back(first, first + packet.size());
    const std::size_t bth = emu::kLrhBytes + (parsed.headers.has_grh ? emu::kGrhBytes : 0);
    packets_.back()[bth + 8] &= 0x7f;
    if ((parsed.info->headers & emu::kReth) != 0)
      std::memset(&packets_.back()[bth + emu::kBthBytes], 0, emu::kRethBytes - 4);
  }

  std::vector<Bytes> packets_;
  std::size_t trains_ = 0;
  std::size_t flits_ = 0;
};

PairOptions options_of(std::uint64_t seed, bool trains) {
  emu::Prng prng(seed);
  PairOptions options;
  options.host.seals = false;
  const std::uint32_t groups = 1 + prng.below(6);
  if (trains) options.link.trains = groups;
  options.link.slots = 200;
  options.host.mtu_bytes = 4096;
  if (prng.below(2) == 0) options.host.packet_flits = emu::kPacketBytesMax / 16;
  options.path.mtu = static_cast<std::uint8_t>(1 + prng.below(5));
  options.path.global = prng.below(2) == 0;
  options.mapped = prng.below(2) == 0;
  options.link.lends = prng.below(2) == 0;
  options.type = prng.below(3) == 0 ? hca::QpType::uc : hca::QpType::rc;
  return options;
}

// Messages of every kind and length.
void exchange(Pair& pair, std::uint64_t seed, hca::QpType type) {
  emu::Prng prng(seed + 1000);
  std::size_t at = 0;
  for (std::uint64_t i = 0; i < 30; ++i) {
    const std::uint32_t length = prng.below(prng.below(2) == 0 ? 30'000 : 300);
    const hca::Sge from = pair.a.sge(at, length);
    sim::Send send{.wr_id = i, .sges = {&from, 1}, .imm = prng.below(1000)};
    send.remote_addr = pair.b.address(at);
    send.rkey = pair.b.keys.rkey;
    constexpr WrOpcode kKinds[] = {WrOpcode::send, WrOpcode::send_imm, WrOpcode::rdma_write,
                                   WrOpcode::rdma_write_imm, WrOpcode::rdma_read};
    send.opcode = kKinds[prng.below(type == hca::QpType::uc ? 4 : 5)];
    if (prng.below(2) == 0) send.flags |= hca::kWqeSolicited;
    if (send.opcode == WrOpcode::rdma_read)
      std::memcpy(&pair.b.bytes[at], &pair.a.bytes[at], length);
    if (send.opcode != WrOpcode::rdma_write && send.opcode != WrOpcode::rdma_read)
      pair.expect_recv(i, pair.b.sge(at, length));
    ASSERT_EQ(pair.post(send), 0);
    at += length;
    if (prng.below(3) != 0 && i < 29) continue;
    for (const WcStatus status : test::statuses(pair.run().first))
      ASSERT_EQ(status, WcStatus::success);
  }
  EXPECT_EQ(std::memcmp(pair.a.bytes.data(), pair.b.bytes.data(), at), 0);
}

class Trains : public testing::TestWithParam<int> {};

TEST_P(Trains, StandForThePacketsThatWouldHaveLeft) {
  const auto seed = static_cast<std::uint64_t>(GetParam());
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::optional<Wire> wires[2];
  hca::ClassCounters counters[2];
  for (const bool trains : {false, true}) {
    const PairOptions options = options_of(seed, trains);
    Pair pair(options);
    wires[trains].emplace(pair);
    exchange(pair, seed, options.type);
    counters[trains] = pair.cluster.host(1)
                           .counters()
                           .by_class[static_cast<std::size_t>(emu::TrafficClass::best_effort)];
  }
  EXPECT_EQ(wires[0]->trains(), 0U);
  EXPECT_GT(wires[1]->trains(), 0U);
  // READ responses come at other times between the requests, so each side's are compared.
  for (const int slid : {1, 2}) {
    std::vector<Bytes> of_side[2];
    for (int i = 0; i < 2; ++i) {
      for (const Bytes& packet : wires[i]->packets())
        if (packet[7] == slid) of_side[i].push_back(packet);
    }
    ASSERT_EQ(of_side[0].size(), of_side[1].size());
    for (std::size_t i = 0; i < of_side[0].size(); ++i)
      EXPECT_EQ(of_side[0][i], of_side[1][i]) << i;
  }
  EXPECT_EQ(wires[0]->flits(), wires[1]->flits());
  EXPECT_EQ(counters[0].bytes_received, counters[1].bytes_received);
}
INSTANTIATE_TEST_SUITE_P(Seeds, Trains, testing::Range(1, test::kSanitized ? 16 : 41));

// One WRITE, or READ, whose train is caught on its way, to be handed on as a test likes it.
struct Caught {
  explicit Caught(hca::QpType type = hca::QpType::rc, WrOpcode opcode = WrOpcode::rdma_write)
      : pair(options(type)), to(opcode == WrOpcode::rdma_read ? 0 : 1) {
    pair.cluster.on_send = [this](const emu::TxDesc& desc, std::span<const std::uint8_t> sent) {
      pair.cluster.link().loss = desc.more_packets != 0 ? 1 : 0;
      if (desc.more_packets == 0 || !bytes.empty()) return;
      more_packets = desc.more_packets;
      bytes.assign(sent.begin(), sent.end());
    };
    if (to == 0) std::ranges::swap_ranges(pair.a.bytes, pair.b.bytes);  // what is to come is there
    const hca::Sge from = pair.a.sge(0, 4 * 1024);
    EXPECT_EQ(pair.post({.opcode = opcode,
                         .sges = {&from, 1},
                         .remote_addr = pair.b.address(0),
                         .rkey = pair.b.keys.rkey}),
              0);
    pair.cluster.run(pair.cluster.now() + 1000);
    EXPECT_EQ(more_packets, 3);
    pair.cluster.on_send = {};
    pair.cluster.link().loss = 0;
  }
  static PairOptions options(hca::QpType type) {
    PairOptions options;
    options.host.seals = false;
    options.host.packet_flits = emu::kPacketBytesMax / 16;
    options.link.trains = 4;
    options.path.mtu = 3;  // 1024
    options.path.timeout = 20;
    options.type = type;
    return options;
  }
  void hand_on() {
    hca::Arrival arrival{};
    arrival.desc.length = static_cast<std::uint16_t>(bytes.size() / 4);
    arrival.desc.more_packets = more_packets;
    hand_on(arrival, bytes);
  }
  // The nth packet of it alone.
  void hand_on_packet(std::uint32_t nth) {
    emu::ParsedPacket parsed;
    ASSERT_EQ(emu::parse_train(as_bytes(bytes), more_packets + 1U, parsed), emu::ParseStatus::ok);
    Bytes packet(emu::kPacketBytesMax);
    const std::size_t length =
        emu::cut_packet(as_bytes(bytes), parsed, nth, std::as_writable_bytes(std::span(packet)));
    hca::Arrival arrival{};
    arrival.desc.length = static_cast<std::uint16_t>(length);
    hand_on(arrival, packet);
  }
  void hand_on(hca::Arrival& arrival, const Bytes& from) {
    arrival.desc.src = static_cast<emu::NodeId>(1 - to);
    arrival.desc.traffic_class = emu::TrafficClass::best_effort;
    arrival.bytes = from.data();
    pair.cluster.host(to).receive({&arrival, 1}, pair.cluster.now());
  }
  void set_lrh_words(std::size_t words) {
    bytes[4] = static_cast<std::uint8_t>(words >> 8);
    bytes[5] = static_cast<std::uint8_t>(words);
  }
  std::size_t lrh_words() const { return bytes[4] * 256U + bytes[5]; }
  std::uint64_t dropped() { return pair.cluster.host(to).counters().dropped_bad_packet; }
  bool arrived() { return std::memcmp(pair.a.bytes.data(), pair.b.bytes.data(), 4096) == 0; }

  Pair pair;
  int to;
  Bytes bytes;
  std::uint16_t more_packets = 0;
};

TEST(Train, ArrivesOnce) {
  Caught train;
  train.hand_on();
  EXPECT_TRUE(train.arrived());
  train.pair.b.bytes[0] ^= 1;
  train.hand_on();  // again: acknowledged, not executed
  EXPECT_FALSE(train.arrived());
  EXPECT_EQ(train.pair.cluster.host(1).counters().duplicates_received, 4U);
  EXPECT_EQ(test::statuses(train.pair.run().first), std::vector{WcStatus::success});
}

// Repeated as a train what had left packet by packet, and in part arrived: the rest is taken.
TEST(Train, TheRestOfItIsTaken) {
  for (const WrOpcode opcode : {WrOpcode::rdma_write, WrOpcode::rdma_read}) {
    for (std::uint32_t there = 1; there <= 3; ++there) {
      Caught train(hca::QpType::rc, opcode);
      std::uint8_t& first = (train.to == 1 ? train.pair.b : train.pair.a).bytes[0];
      for (std::uint32_t i = 0; i < there; ++i) train.hand_on_packet(i);
      first ^= 1;
      train.hand_on();
      EXPECT_FALSE(train.arrived()) << "what had arrived is written once";
      first ^= 1;
      EXPECT_TRUE(train.arrived());
      EXPECT_EQ(test::statuses(train.pair.run().first), std::vector{WcStatus::success});
      EXPECT_EQ(train.pair.cluster.host(0).counters().timeouts, 0U);
    }
  }
}

// Packets are longer than the receiver's path allows.
TEST(Train, OfAnotherMtuIsAnInvalidRequest) {
  Caught train;
  train.set_lrh_words(train.lrh_words() + 1024 / 4);
  train.more_packets = 1;
  train.hand_on();
  EXPECT_FALSE(train.arrived());
  EXPECT_EQ(test::statuses(train.pair.run().first), std::vector{WcStatus::rem_inv_req_err});
}

// A sender may cut its messages smaller, as it may without trains.
TEST(Train, OfASmallerMtuIsOne) {
  Caught train;
  train.set_lrh_words(train.lrh_words() - 512 / 4);
  train.more_packets = 7;
  train.hand_on();
  EXPECT_TRUE(train.arrived());
}

TEST(Train, OfAnotherMtuIsNoUcMessage) {
  Caught train(hca::QpType::uc);
  train.set_lrh_words(train.lrh_words() + 1024 / 4);
  train.more_packets = 1;
  train.hand_on();
  EXPECT_FALSE(train.arrived());
}

TEST(Train, ThatDoesNotCountIsDropped) {
  for (const int more : {1, 2, 4, 15, 0xffff}) {
    Caught train;
    train.more_packets = static_cast<std::uint16_t>(more);
    train.hand_on();
    EXPECT_EQ(train.dropped(), 1U) << more;
    EXPECT_FALSE(train.arrived());
  }
  for (const std::size_t words : {0, 5, 7, 8, 0x7ff}) {
    Caught train;
    train.set_lrh_words(words);
    train.hand_on();
    EXPECT_EQ(train.dropped(), 1U) << words;
  }
  Caught shorter;
  shorter.bytes.resize(emu::kTrainHeadBytes);
  shorter.hand_on();
  EXPECT_EQ(shorter.dropped(), 1U);
}

// Datagrams are one packet each, and what carries no payload is one, too.
TEST(Train, OfOpcodesThatHaveNoneIsDropped) {
  for (const emu::Opcode opcode :
       {emu::Opcode::ud_send_only, emu::Opcode::rc_read_request, emu::Opcode::rc_ack,
        emu::Opcode::rc_compare_swap, emu::Opcode::rc_atomic_write}) {
    Caught train;
    train.bytes[emu::kLrhBytes] = static_cast<std::uint8_t>(opcode);
    train.hand_on();
    EXPECT_EQ(train.dropped(), 1U) << static_cast<int>(opcode);
  }
}

}  // namespace
