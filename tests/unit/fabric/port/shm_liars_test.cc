// Peers that lie on the shared-memory attachment: they are detached, the others notice nothing.
#include <cstring>
#include <map>

#include "emu/base/prng.h"
#include "emu/packet/parse.h"
#include "emu/ring/unix_socket.h"
#include "emu/wire/shm_layout.h"
#include "tests/unit/fabric/port/shm_scene.h"
#include "tests/unit/random_bytes.h"

namespace fabric {
namespace {

// A node that speaks the protocol by hand, so that it can say anything.
class RawNode {
 public:
  explicit RawNode(const std::string& run_dir, const std::string& name) {
    socket_ = std::move(*emu::connect_unix(run_dir + "/fabric.sock", true));
    emu::ShmHello hello{};
    hello.magic = emu::kShmMagic;
    hello.version = emu::kMessageVersion;
    hello.type = emu::ShmMessageType::hello;
    name.copy(hello.node_name, emu::kNodeNameBytes - 1);
    (void)emu::send_message(socket_.get(), std::as_bytes(std::span(&hello, 1)));
  }
  void welcomed() {
    std::array<std::byte, 512> buffer;
    auto message = emu::receive_message(socket_.get(), buffer);
    ASSERT_TRUE(message);
    ASSERT_EQ(message->fd_count, emu::kWelcomeFds);
    rings_ = emu::shm_rings(kSlots);
    region_ =
        std::move(*emu::Region::map(message->fds[0].take(), rings_.bytes, emu::Access::read_write));
    tx_ = emu::RingProducer(emu::RingView<emu::TxDesc>(at(rings_.tx), rings_.tx_capacity));
    rx_free_ =
        emu::RingProducer(emu::RingView<emu::Free>(at(rings_.rx_free), emu::kRxFreeCapacity));
  }
  std::byte* at(std::uint64_t offset) const { return region_.data() + offset; }

  emu::UniqueFd socket_;
  emu::Region region_;
  emu::ShmRings rings_;
  emu::RingProducer<emu::TxDesc> tx_;
  emu::RingProducer<emu::Free> rx_free_;
};

TEST_F(ShmPortTest, EveryWrongDescriptorDetachesItsSenderOnly) {
  auto n1 = attach("n1");
  const auto good = desc(0, 1, 1);
  std::map<std::string, emu::TxDesc> wrong;
  auto vary = [&](const char* name, auto change) {
    wrong[name] = good;
    change(wrong[name]);
  };
  vary("buffer", [](auto& d) { d.buffer = kSlots; });
  vary("buffer far", [](auto& d) { d.buffer = 0xffff; });
  vary("train", [](auto& d) { d.more_packets = 1; });  // flits are modelled here
  vary("length zero", [](auto& d) { d.length = 0; });
  vary("length long", [](auto& d) { d.length = emu::kPacketBytesMax + 1; });
  vary("flits zero", [](auto& d) { d.flits = 0; });
  vary("flits many", [](auto& d) { d.flits = 0xffff; });
  vary("flits few", [](auto& d) { d.flits = 39; });
  vary("dest", [](auto& d) { d.dest = 3; });
  vary("vl_in range", [](auto& d) { d.vl_in = 16; });
  vary("vl_in class", [](auto& d) { d.vl_in = 4; });
  vary("vl_out class", [](auto& d) { d.vl_out = 15; });
  vary("class", [](auto& d) { d.traffic_class = static_cast<emu::TrafficClass>(3); });
  vary("kind", [](auto& d) { d.kind = static_cast<emu::PacketKind>(4); });
  vary("probe class", [](auto& d) { d.kind = emu::PacketKind::probe; });
  vary("launch", [](auto& d) { d.launch_cycle = emu::kNever; });
  for (const auto& [name, bad] : wrong) {
    SCOPED_TRACE(name);
    RawNode liar(run_dir_, "n0");
    turn();
    turn();
    liar.welcomed();
    ASSERT_TRUE(port_->attached(0));
    liar.tx_.push(good);
    liar.tx_.push(bad);
    turn();
    turn();
    EXPECT_FALSE(port_->attached(0));
    EXPECT_NE(last_loss().find("wrong"), std::string::npos) << last_loss();
    EXPECT_TRUE(port_->attached(1));
    receive(*n1);
    turn();
    turn();
    EXPECT_EQ(memory_.pools().size(), 1U);
  }
}

TEST_F(ShmPortTest, EveryWrongTrainDetachesItsSender) {
  port_.reset();
  options_.rules.trains = true;
  open_port();
  auto n1 = attach("n1");
  emu::TxDesc good = desc(0, 1, 1);
  good.more_packets = 3;
  good.length = 640 / 4;
  good.flits = 40;
  std::map<std::string, emu::TxDesc> wrong;
  auto vary = [&](const char* name, auto change) {
    wrong[name] = good;
    change(wrong[name]);
  };
  vary("slots", [](auto& d) { d.buffer = kSlots - emu::kTrainSlots + 1; });
  vary("packets", [](auto& d) { d.more_packets = 16; });
  vary("packets far", [](auto& d) { d.more_packets = 0xffff; });
  vary("kind", [](auto& d) {
    d.kind = emu::PacketKind::subnet;
    d.traffic_class = emu::TrafficClass::control;
    d.vl_in = d.vl_out = 15;
  });
  vary("length", [](auto& d) { d.length = emu::kTrainBufferBytes / 4 + 1; });
  vary("headers alone", [](auto& d) { d.length = emu::kTrainHeadBytes / 4; });
  vary("flits few", [](auto& d) { d.flits = 31; });
  vary("flits many",
       [this](auto& d) { d.flits = static_cast<std::uint16_t>(4 * options_.rules.flits_max + 1); });
  for (const auto& [name, bad] : wrong) {
    SCOPED_TRACE(name);
    RawNode liar(run_dir_, "n0");
    turn();
    turn();
    liar.welcomed();
    ASSERT_TRUE(port_->attached(0));
    liar.tx_.push(good);
    turn();
    turn();
    ASSERT_TRUE(port_->attached(0)) << last_loss();
    liar.tx_.push(bad);
    turn();
    turn();
    EXPECT_FALSE(port_->attached(0));
    EXPECT_NE(last_loss().find("wrong"), std::string::npos) << last_loss();
    std::array<hca::Received, 4> got;
    ASSERT_EQ(n1->receive(got), 1U);
    n1->release(got[0].desc.buffer);
    n1->flush();
    turn();
    turn();
    EXPECT_EQ(memory_.pools().size(), 1U);
  }
}

TEST_F(ShmPortTest, ABufferSentTwiceOrReleasedWithoutBeingHeldDetaches) {
  for (const bool twice : {true, false}) {
    RawNode liar(run_dir_, "n0");
    turn();
    turn();
    liar.welcomed();
    hold_ = true;
    if (twice) {
      liar.tx_.push(desc(7, 1, 1));
      liar.tx_.push(desc(7, 1, 1));
    } else {
      liar.rx_free_.push({handle_of(memory_.pools()[0], 3)});
    }
    turn();
    turn();
    EXPECT_FALSE(port_->attached(0));
    hold_ = false;
    while (!held_.empty()) {
      arrive(held_.front());
      held_.pop_front();
    }
    turn();
    turn();
    EXPECT_EQ(memory_.pools().size(), 0U);
  }
}

TEST_F(ShmPortTest, RandomBytesAllOverTheRingsNeverReachTheOthers) {
  const std::uint64_t seed = 7;
  SCOPED_TRACE(seed);
  emu::Prng prng(seed);
  auto n1 = attach("n1");
  auto n2 = attach("n2");
  for (int round = 0; round < 200; ++round) {
    RawNode liar(run_dir_, "n0");
    turn();
    turn();
    liar.welcomed();
    auto* words = reinterpret_cast<std::uint64_t*>(liar.region_.data());
    const auto count = static_cast<std::uint32_t>(liar.region_.size() / 8);
    const std::uint32_t scribbles = 1 + prng.below(64);
    for (std::uint32_t i = 0; i < scribbles; ++i) {
      // Half of them at the indices, which stand at the front of each ring.
      const std::uint64_t rings[] = {liar.rings_.tx, liar.rings_.rx_free, liar.rings_.rx,
                                     liar.rings_.tx_free, liar.rings_.injected};
      const std::uint64_t value = prng.below(2) == 0 ? prng() : prng.below(300);
      if (prng.below(2) == 0) {
        words[(rings[prng.below(5)] + 64 * prng.below(2)) / 8] = value;
      } else {
        words[prng.below(count)] = value;
      }
    }
    const auto cookie = static_cast<std::uint64_t>(round);
    send(*n1, 2, cookie);
    n1->flush();
    for (int i = 0; i < 3; ++i) turn();
    n1->service(host_ns_);  // reads what it is told about pools
    n2->service(host_ns_);
    auto got = receive(*n2);
    EXPECT_NE(std::find(got.begin(), got.end(), cookie), got.end());
    receive(*n1);
    ASSERT_TRUE(port_->attached(1) && port_->attached(2)) << last_loss();
  }
}

TEST_F(ShmPortTest, GarbageOnTheSocketIsRefused) {
  auto n1 = attach("n1");
  const std::uint64_t seed = 11;
  emu::Prng prng(seed);
  for (int i = 0; i < 300; ++i) {
    auto socket = emu::connect_unix(run_dir_ + "/fabric.sock", true);
    ASSERT_TRUE(socket);
    std::vector<std::byte> bytes(1 + prng.below(200));
    test::fill_at_random(prng, bytes);
    if (bytes.size() >= 4 && prng.below(2) == 0) {
      std::memcpy(bytes.data(), &emu::kShmMagic, 4);
    }
    (void)emu::send_message(socket->get(), bytes);
    turn();
  }
  EXPECT_TRUE(port_->attached(1));
  EXPECT_FALSE(port_->attached(0));
}

TEST_F(ShmPortTest, ConnectionsThatSayNothingAreDroppedAfterAWhile) {
  std::vector<emu::UniqueFd> silent;
  for (int i = 0; i < 64; ++i)
    silent.push_back(std::move(*emu::connect_unix(run_dir_ + "/fabric.sock", true)));
  turn();
  host_ns_ += 3'000'000'000;
  turn();
  turn();
  auto n0 = attach("n0");
  EXPECT_EQ(n0->state(), hca::AttachState::attached) << n0->reason();
}

}  // namespace
}  // namespace fabric
