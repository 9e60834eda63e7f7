// A host whose port is emptied lane by lane at random, against a few counts that say what it may
// hand on and what it must.
#include <gtest/gtest.h>

#include <array>
#include <map>

#include "tests/unit/hca/host/lane_net.h"

namespace {

using namespace test;

constexpr unsigned kLanesUsed = 4;
constexpr emu::Cycle kStepCycles = 50'000;  // all that was let go arrives

// What a node has at the wire, from what was handed on and injected alone.
struct Wire {
  explicit Wire(std::uint32_t pool) : slots(pool) {}
  std::uint32_t left() const { return slots - std::min(slots, all); }
  bool full(unsigned lane) const {
    const std::uint32_t packets = lanes[lane];
    return packets > 0 && packets + std::min(packets, std::min(128U, slots / 8)) > left();
  }
  std::uint32_t slots;
  std::uint32_t all = 0;
  std::array<std::uint32_t, kLanesUsed> lanes{};
};

class LanesRandom : public testing::TestWithParam<std::uint64_t> {
 protected:
  struct Talk {
    Connection via;
    unsigned lane;
    bool alive = true;
    std::uint32_t posted = 0;  // packets
    std::uint32_t sent = 0;
    std::uint32_t psn = kFirstPsn;
    std::size_t messages = 0;
    std::size_t done = 0;
  };

  LanesRandom()
      : prng(GetParam()),
        slots(8 + prng.below(prng.below(2) == 0 ? 40 : 600)),
        net(slots, {.seed = GetParam()}),
        wires{Wire(slots), Wire(slots)} {
    net.cluster.on_send = [this](const emu::TxDesc& desc, std::span<const std::uint8_t> bytes) {
      handed_on(desc, bytes);
    };
    net.cluster.on_injected = [this](const emu::TxDesc& desc) {
      Wire& wire = wires[desc.dest == 1 ? 0 : 1];
      --wire.all;
      if (in_lane(desc)) --wire.lanes[desc.vl_in];
    };
    net.cluster.hold_lanes(0, 0xf);
    net.cluster.hold_lanes(1, 0xf);
    for (int i = 0; i < 6; ++i) join();
  }

  // All but acknowledgements, which are short here.
  static bool in_lane(const emu::TxDesc& desc) { return desc.flits > 4; }

  void handed_on(const emu::TxDesc& desc, std::span<const std::uint8_t> bytes) {
    Wire& wire = wires[desc.dest == 1 ? 0 : 1];
    if (in_lane(desc)) {
      const std::uint32_t packets = wire.lanes[desc.vl_in]++;
      EXPECT_TRUE(packets == 0 || packets < wire.left()) << packets << " on " << desc.vl_in + 0;
    }
    ++wire.all;
    if (desc.dest != 1 || !in_lane(desc)) return;
    emu::ParsedPacket packet;
    ASSERT_EQ(emu::parse_packet(std::as_bytes(bytes), packet), emu::ParseStatus::ok);
    const auto found = talks.find(static_cast<std::uint32_t>(desc.cookie & emu::kMask24));
    ASSERT_NE(found, talks.end());
    Talk& talk = found->second;
    EXPECT_EQ(packet.headers.bth.psn, talk.psn) << "out of order";
    talk.psn = emu::psn_add(talk.psn, 1);
    ++talk.sent;
  }

  void join() {
    const unsigned lane = prng.below(kLanesUsed);
    const auto type = prng.below(3) == 0 ? hca::QpType::uc : hca::QpType::rc;
    Talk talk{.via = net.join(sl_of_lane(lane), type), .lane = lane};
    talks[talk.via.a.number] = talk;
  }

  Talk& any() {
    auto at = talks.begin();
    std::advance(at, prng.below(static_cast<std::uint32_t>(talks.size())));
    return at->second;
  }

  void act() {
    const std::uint32_t what = prng.below(100);
    if (what < 45) {
      Talk& talk = any();
      if (!talk.alive || talk.messages - talk.done > 60) return;
      const std::uint32_t packets = 1 + prng.below(prng.below(3) == 0 ? 90 : 5);
      net.write(talk.via, packets);
      if (prng.below(4) == 0) net.write_back(talk.via, packets);
      talk.posted += packets;
      ++talk.messages;
    } else if (what < 95) {
      const int node = static_cast<int>(prng.below(2));
      net.cluster.let_go(node, prng.below(kLanesUsed), 1 + prng.below(40));
    } else {
      Talk& talk = any();
      if (!talk.alive) return;
      talk.alive = false;
      EXPECT_EQ(net.cluster.host(0).destroy_qp(net.a.app->client(), talk.via.a.number), 0);
      EXPECT_EQ(net.cluster.host(1).destroy_qp(net.b.app->client(), talk.via.b.number), 0);
      join();
    }
  }

  void look() {
    for (const hca::Cqe& cqe : net.a.take()) {
      EXPECT_EQ(cqe.status, hca::WcStatus::success);
      ++talks.at(cqe.qp_num).done;
    }
    for (const hca::Cqe& cqe : net.b.take()) EXPECT_EQ(cqe.status, hca::WcStatus::success);
    if (wires[0].left() == 0) return;
    for (const auto& [number, talk] : talks) {
      if (!talk.alive || talk.sent == talk.posted) continue;
      EXPECT_TRUE(wires[0].full(talk.lane)) << "QP " << number << " waits for nothing";
    }
  }

  emu::Prng prng;
  std::uint32_t slots;
  LaneNet net;
  std::array<Wire, 2> wires;
  std::map<std::uint32_t, Talk> talks;  // by QP number
};

TEST_P(LanesRandom, AHostHandsOnWhatItMayAndAllOfIt) {
  SCOPED_TRACE(testing::Message() << "seed " << GetParam());
  for (int step = 0; step < 600 && !HasFailure(); ++step) {
    act();
    net.cluster.run(net.cluster.now() + kStepCycles);  // without slots it looks again for ever
    look();
  }
  net.let_all_go();
  look();
  for (const auto& [number, talk] : talks) {
    EXPECT_TRUE(!talk.alive || talk.done == talk.messages) << "QP " << number;
  }
  for (const Wire& wire : wires) EXPECT_EQ(wire.all, 0U);
  for (int n = 0; n < 2; ++n) EXPECT_TRUE(net.cluster.host(n).idle());
}
INSTANTIATE_TEST_SUITE_P(Seeds, LanesRandom, testing::Range<std::uint64_t>(1, 41));

}  // namespace
