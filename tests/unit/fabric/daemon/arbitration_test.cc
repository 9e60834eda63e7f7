// What is booked becomes what the arbiters do: shares of a link that is asked for more than it has.
#include "fabric/daemon/arbitration.h"

#include <gtest/gtest.h>

#include <array>

#include "fabric/daemon/spec.h"

namespace fabric {
namespace {

constexpr emu::Vl kFirst = 4;
constexpr emu::Vl kSecond = 5;
constexpr emu::Vl kBestEffort = 0;

class ArbitrationTest : public testing::Test {
 protected:
  void set_up(const std::string& toml) {
    config_ = emu::Config::parse(toml, "test").value();
    network_ = Network::make(network_spec(config_, 0)).value();
    const std::array<int, 1> ports = {network_->ports(0)};
    admission_ = std::make_unique<Admission>(ports, book_limits(config_, 1), true);
    arbitration_ = std::make_unique<Arbitration>(config_, *network_);
  }
  // A connection from a node to node 1 on `vl`.
  void book(emu::Vl vl, std::uint64_t rate_bps, emu::NodeId source = 0) {
    ProbeState probe{{.connection = vl,
                      .rate_bps = rate_bps,
                      .peak_bps = rate_bps,
                      .source = source,
                      .dest = 1,
                      .vl = vl,
                      .vl_in = vl}};
    admission_->probe(0, network_->port_of(source), network_->port_of(1), probe, vl);
    ASSERT_EQ(probe.rejected_by, emu::kNoRouter);
    arbitration_->follow(*admission_, *network_);
  }
  // Flits by lane that arrive when node 0 has far more for node 1 than its link carries.
  std::array<double, emu::kVlCount> flits(emu::Cycle cycles) {
    for (int i = 0; i < 600; ++i) {
      for (const emu::Vl vl : {kBestEffort, kFirst, kSecond}) {
        hca::SendPacket packet;
        packet.flits = 100;  // long: between two messages a lane has a gap
        packet.dest = 1;
        packet.vl_in = packet.vl_out = vl;
        EXPECT_TRUE(network_->submit(0, packet));
      }
    }
    network_->step(cycles);
    std::array<double, emu::kVlCount> arrived{};
    for (const auto& event : network_->delivered()) arrived[event.vl] += event.flits;
    return arrived;
  }

  emu::Config config_;
  std::unique_ptr<Network> network_;
  std::unique_ptr<Admission> admission_;
  std::unique_ptr<Arbitration> arbitration_;
};

TEST_F(ArbitrationTest, TablesFollowWhatIsBooked) {
  set_up("[qos]\nscheduler = \"two_level\"\n");
  book(kFirst, 90'000'000);
  book(kSecond, 30'000'000);
  const emu::VlWeights small =
      arbitration_->weights({admission_->book(0).in_rates(0).rate_bps, 120'000'000, 400'000'000});
  // F = 4 * 11 lanes; what is booked shares it 3 : 1, other lanes keep a turn.
  EXPECT_EQ(small.high[kFirst], 33);
  EXPECT_EQ(small.high[kSecond], 11);
  EXPECT_EQ(small.high[6], 1);
  EXPECT_EQ(small.high[kBestEffort], 0);
  EXPECT_EQ(small.high_limit, 1);  // B / (B - B_p) = 400 / 280
  EXPECT_FALSE(small.whole_packets);
}

// As OpenSM writes them: weights of 64 bytes, a limit of 4 KiB, flits of 16 bytes here.
TEST(ArbitrationKeys, CountAsInfiniBandDoes) {
  const auto weights = [](const std::string& keys) {
    const auto config = emu::Config::parse("[qos]\nscheduler = \"two_level\"\n" + keys);
    EXPECT_TRUE(config) << config.error().message;
    return network_spec(*config, 0).weights;
  };
  const emu::VlWeights given = weights(
      "qos_high_limit = 2\nqos_vlarb_high = \"0:4,1:0,4:64,4:64\"\nqos_vlarb_low = \"1:4,2:1\"\n");
  EXPECT_EQ(given.high[0], 16);
  EXPECT_EQ(given.high[1], 0);  // skipped
  EXPECT_EQ(given.high[4], 512);
  EXPECT_EQ(given.low[1], 16);
  EXPECT_EQ(given.low[2], 4);
  // Flits of 48 bytes: three entries of 64 are four of them.
  EXPECT_EQ(weights("qos_vlarb_high = \"1:1,1:1,1:1\"\n[network]\nflit_bits = 384\n").high[1], 4);
  EXPECT_EQ(given.high_limit, 512);
  EXPECT_TRUE(given.whole_packets);
  EXPECT_EQ(weights("qos_high_limit = 0\n").high_limit, 1);  // any packet reaches it
  EXPECT_EQ(weights("qos_high_limit = 254\n").high_limit, 0xfe00);
  EXPECT_LT(weights("qos_high_limit = 254\n[network]\nflit_bits = 32\n").high_limit, 0xfffe);
  EXPECT_EQ(weights("qos_high_limit = 255\n").high_limit, emu::kLimitUnbounded);
}

TEST_F(ArbitrationTest, SharesOfALinkFollowWhatIsBooked) {
  set_up("[qos]\nscheduler = \"two_level\"\n");
  book(kFirst, 270'000'000);
  book(kSecond, 90'000'000);
  const auto arrived = flits(30000);
  EXPECT_NEAR(arrived[kFirst] / arrived[kSecond], 3.0, 0.05);
  // L = B / (B - B_p) = 10: after ten flits of the high table one of the low.
  EXPECT_NEAR(arrived[kFirst] + arrived[kSecond], 10 * arrived[kBestEffort],
              arrived[kBestEffort] * 0.5);
}

TEST_F(ArbitrationTest, VirtualClockGoesByTheBookedRate) {
  set_up("[qos]\nscheduler = \"vclk\"\n");
  book(kFirst, 200'000'000);
  book(kSecond, 50'000'000);
  // Short of the 32767 cycles that 16-bit stamps can be ahead.
  const auto arrived = flits(10000);
  EXPECT_NEAR(arrived[kFirst] / arrived[kSecond], 4.0, 0.2);
}

// Cycles between a lane's flits are whole, rates are not: 230 and 130 of 400 are 1.7 and 3.1
// cycles.
TEST_F(ArbitrationTest, ALaneGetsWhatIsBookedWhateverTheOtherHas) {
  constexpr std::array<std::array<std::uint64_t, 2>, 5> kPairs = {
      {{230, 130}, {210, 150}, {300, 60}, {200, 134}, {300, 40}}};
  for (const char* scheduler : {"vclk", "fq"}) {
    for (const auto& [first, second] : kPairs) {
      set_up(std::string("[qos]\nscheduler = \"") + scheduler + "\"\n");
      book(kFirst, first * 1'000'000);
      book(kSecond, second * 1'000'000);
      const auto arrived = flits(10000);
      const double link = 10000.0 / 400;  // flits for each Mb/s
      // A hundredth is the cycle between two messages.
      EXPECT_GT(arrived[kFirst], 0.98 * link * static_cast<double>(first)) << scheduler;
      EXPECT_GT(arrived[kSecond], 0.98 * link * static_cast<double>(second)) << scheduler;
    }
  }
}

// The scheduler of a full crossbar sits at the output: what two senders have booked there decides
// between them. At their own links each has all of it.
TEST_F(ArbitrationTest, AFullCrossbarGoesByWhatIsBookedAtItsOutput) {
  for (const std::string scheduler : {"wrr", "vclk"}) {
    set_up("[network]\ncrossbar = \"full\"\n[qos]\nscheduler = \"" + scheduler + "\"\n");
    book(kFirst, 200'000'000, 0);
    book(kSecond, 50'000'000, 2);
    for (int i = 0; i < 300; ++i) {
      for (const auto& [node, vl] : {std::pair{0, kFirst}, std::pair{2, kSecond}}) {
        hca::SendPacket packet;
        packet.flits = 200;
        packet.dest = 1;
        packet.vl_in = packet.vl_out = vl;
        EXPECT_TRUE(network_->submit(static_cast<emu::NodeId>(node), packet));
      }
    }
    network_->step(10'000);  // see above
    double first = 0;
    double second = 0;
    for (const auto& event : network_->delivered())
      (event.vl == kFirst ? first : second) += event.flits;
    EXPECT_NEAR(first / second, 4.0, 0.5) << scheduler;
  }
}

// HCAs with a scheduler of their own get the booked weights too: who has booked more comes first at
// a router that serves the first who comes. Without, the lowest lane of those that are ready at
// once goes first, as far as its credits reach.
TEST_F(ArbitrationTest, HcasMayHaveASchedulerOfTheirOwn) {
  set_up("[qos]\nscheduler = \"fcfs\"\nhca_scheduler = \"wrr\"\n");
  book(kFirst, 270'000'000);
  book(kSecond, 90'000'000);
  const auto arrived = flits(30'000);
  EXPECT_GT(arrived[kFirst], 1.5 * arrived[kSecond]);
  EXPECT_GT(arrived[kSecond], arrived[kBestEffort]);
  set_up("[qos]\nscheduler = \"fcfs\"\n");
  book(kFirst, 270'000'000);
  const auto without = flits(30'000);
  EXPECT_GT(without[kBestEffort], 1.5 * without[kFirst]);
}

TEST_F(ArbitrationTest, AReleaseTakesTheShareBack) {
  set_up("[qos]\nscheduler = \"wrr\"\n");
  book(kFirst, 90'000'000);
  book(kSecond, 30'000'000);
  admission_->release(0, {.connection = kFirst, .source = 0, .dest = 1});
  admission_->release(0, {.connection = kSecond, .source = 0, .dest = 1});
  arbitration_->follow(*admission_, *network_);
  const auto arrived = flits(30000);
  EXPECT_NEAR(arrived[kFirst] / arrived[kSecond], 1.0, 0.02);
}

// Nor does it matter what was booked once, or what another node has booked in the same router.
TEST_F(ArbitrationTest, ALinkOnWhichNothingIsBookedKeepsItsLimit) {
  for (const std::string limit : {"2", "255"}) {
    const std::string toml = "[qos]\nscheduler = \"two_level\"\nqos_high_limit = " + limit + "\n";
    set_up(toml);
    const auto never = flits(30'000);
    set_up(toml);
    book(kFirst, 90'000'000);
    admission_->release(0, {.connection = kFirst, .source = 0, .dest = 1});
    arbitration_->follow(*admission_, *network_);
    EXPECT_EQ(flits(30'000), never) << limit;
    set_up(toml);
    book(kFirst, 1'000'000, 2);
    EXPECT_EQ(flits(30'000), never) << limit;
  }
}

TEST_F(ArbitrationTest, TablesOfTheConfigurationStay) {
  set_up(
      "[qos]\nscheduler = \"two_level\"\nqos_vlarb_high = \"4:1,5:2\"\nqos_vlarb_low = \"0:1\"\n");
  book(kFirst, 200'000'000);
  const auto arrived = flits(30000);
  EXPECT_NEAR(arrived[kSecond] / arrived[kFirst], 2.0, 0.05);
}

}  // namespace
}  // namespace fabric
