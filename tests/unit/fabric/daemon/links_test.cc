// Links that go out of service under bookings: whatever is asked, given back, lost and cut at
// whichever moment, what is booked in the end is what the connections hold, on today's ways.
#include "fabric/daemon/links.h"

#include <array>
#include <map>
#include <set>
#include <utility>

#include "emu/base/prng.h"
#include "tests/unit/emu/wire/seed.h"
#include "tests/unit/fabric/daemon/edge_world.h"

namespace fabric {
namespace {

constexpr const char* kTree = "[network]\ntopology = \"tree:2x3\"\n";  // 8 nodes, 12 routers

class World : public EdgeTest {
 protected:
  void SetUp() override {
    make(kTree, false);
    links_.emplace(config_, *network_, *edge_);
  }
  void set(const std::string& name, bool up) {
    const auto link = links_->parse(name);
    ASSERT_TRUE(link) << link.error().message;
    const auto done = links_->set(*link, up);
    ASSERT_TRUE(done) << done.error().message;
  }
  std::string first_up() const {  // of the way from node 0 to node 7
    const Hop hop = network_->path(0, 7).front();
    return fmt::format("{}:{}", hop.router, hop.out_port);
  }

  std::optional<Links> links_;
};

// HCAs that ask, give back, die and come again, as hca/host plays it, and somebody who pulls
// cables.
class LinksTest : public World {
 protected:
  enum class State { asking, held };
  struct Connection {
    emu::NodeId dest;
    State state;
  };
  using Key = std::pair<emu::NodeId, std::uint64_t>;

  void ask(const Key& key) {
    send(control(emu::PacketKind::probe, key.first, connections_.at(key).dest, key.second, 1));
  }
  void ask_new(emu::NodeId node) {
    const Key key = {node, next_id_++};
    connections_[key] = {static_cast<emu::NodeId>((node + 1 + prng_.below(7)) % 8), State::asking};
    ask(key);
  }
  void give_back_one() {  // also of what is still asked for
    if (connections_.empty()) return;
    auto one = connections_.begin();
    std::advance(one, prng_.below(static_cast<std::uint32_t>(connections_.size())));
    give_back(one->first);
    connections_.erase(one);
  }
  void give_back(const Key& key) {
    send(control(emu::PacketKind::release, key.first, connections_.at(key).dest, key.second, 1));
  }
  // Refused where it would cut somebody off, or where too many sets are still gone by.
  void pull_or_plug() {
    constexpr std::array<const char*, 8> kCables = {"0:2", "1:3", "2:2", "3:3",
                                                    "4:2", "5:3", "6:2", "7:3"};
    const std::string cable = kCables[prng_.below(kCables.size())];
    const bool up = down_.contains(cable);
    if (!links_->set(*links_->parse(cable), up)) return;
    up ? void(down_.erase(cable)) : void(down_.insert(cable));
  }
  void die_and_come_again(emu::NodeId node) {
    edge_->lost(node);
    std::erase_if(connections_, [&](const auto& c) { return c.first.first == node; });
    edge_->attached(node, port_);
  }
  void anything() {
    const auto node = static_cast<emu::NodeId>(prng_.below(8));
    const std::uint32_t dice = prng_.below(32);
    if (dice < 12) return ask_new(node);
    if (dice < 21) return give_back_one();
    if (dice < 31) return pull_or_plug();
    die_and_come_again(node);
  }
  void hear() {
    const auto answers = std::exchange(port_.answers, {});
    for (const auto& [node, answer] : answers) {
      const auto found = connections_.find({node, answer.connection});
      if (found == connections_.end()) continue;
      if (answer.verdict == emu::Verdict::again) {
        ++asked_again_;
        found->second.state = State::asking;
        ask(found->first);
        continue;
      }
      EXPECT_EQ(answer.verdict, emu::Verdict::ack) << "rates are too small to be refused";
      found->second.state = State::held;
    }
  }

  std::uint64_t seed_ = emu::test_seed();
  emu::Prng prng_{seed_};
  std::map<Key, Connection> connections_;
  std::set<std::string> down_;
  std::uint64_t next_id_ = 1;
  std::uint64_t asked_again_ = 0;
};

TEST_F(LinksTest, NamesAreNodesAndPortsOfRouters) {
  EXPECT_TRUE(links_->parse("n3")->is_node());
  EXPECT_FALSE(links_->parse(first_up())->is_node());
  const LinkEnd of_node = {network_->router_of(5), network_->port_of(5)};
  const auto by_port = links_->parse(fmt::format("{}:{}", of_node.router, of_node.port));
  ASSERT_TRUE(by_port);
  EXPECT_EQ(by_port->node, 5);
  for (const char* wrong :
       {"", "n8", "0", ":", "0:", ":0", "12:0", "0:99", "-1:0", "0:1x", "0:1:2", "4294967296:0"}) {
    const auto link = links_->parse(wrong);
    ASSERT_FALSE(link) << wrong;
    EXPECT_EQ(link.error().message.find('\n'), std::string::npos);
  }
}

TEST_F(LinksTest, WhatWasBookedIsAskedForAgainOnTheWayRound) {
  send(control(emu::PacketKind::probe, 0, 7, 5, 40));
  run(1000);
  ASSERT_EQ(port_.answers.size(), 1U);
  const auto before = network_->path(0, 7);
  EXPECT_EQ(bookings(), before.size());
  const std::string name = first_up();
  set(name, false);
  EXPECT_TRUE(links_->is_down(links_->parse(name)->end));
  EXPECT_EQ(links_->down_count(), 1U);
  EXPECT_NE(network_->path(0, 7), before);
  EXPECT_EQ(bookings(), 0U) << "at once, everywhere";
  ASSERT_EQ(port_.answers.size(), 2U);
  EXPECT_EQ(port_.answers[1].first, 0);
  EXPECT_EQ(port_.answers[1].second.connection, 5U);
  EXPECT_EQ(port_.answers[1].second.verdict, emu::Verdict::again);
  send(control(emu::PacketKind::probe, 0, 7, 5, 40));
  run(1000);
  ASSERT_EQ(port_.answers.size(), 3U);
  EXPECT_EQ(port_.answers[2].second.verdict, emu::Verdict::ack);
  EXPECT_EQ(bookings(), network_->path(0, 7).size());
  set(name, true);
  EXPECT_EQ(network_->path(0, 7), before);
  EXPECT_EQ(port_.answers.back().second.verdict, emu::Verdict::again);
  EXPECT_EQ(bookings(), 0U);
}

TEST_F(LinksTest, WhoseWayIsTheSameHearsNothing) {
  send(control(emu::PacketKind::probe, 4, 5, 1, 40));
  run(1000);
  set(first_up(), false);
  EXPECT_EQ(port_.answers.size(), 1U);
  EXPECT_EQ(bookings(), network_->path(4, 5).size());
}

TEST_F(LinksTest, APartitionIsRefusedAndChangesNothing) {
  set("0:2", false);
  const auto refused = links_->set(*links_->parse("0:3"), false);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message.find('\n'), std::string::npos);
  EXPECT_EQ(links_->down_count(), 1U);
}

TEST_F(LinksTest, ANodesLinkIsTheNodes) {
  set("n3", false);
  EXPECT_TRUE(links_->node_down(3));
  EXPECT_EQ(links_->down_count(), 1U);
  emu::JsonWriter json;
  json.open();
  links_->write(json);
  EXPECT_NE(json.close().text().find("\"link\":\"n3\",\"to\":\"1:1\",\"up\":false"),
            std::string::npos)
      << json.text();
  set("n3", true);
  EXPECT_EQ(links_->down_count(), 0U);
}

TEST_F(LinksTest, EachTimeThatOneGoesDownCounts) {
  const LinkEnd end = links_->parse("0:2")->end;
  const Network::Peer far = network_->peer(end.router, end.port);
  for (const bool up : {false, false, true, true, false}) set("0:2", up);
  EXPECT_EQ(links_->downs(end), 2U) << "not those of one that is down";
  EXPECT_EQ(links_->downs({far.router, far.port}), 2U);
  EXPECT_EQ(links_->downs({network_->router_of(3), network_->port_of(3)}), 0U);
  links_->lost(3);
  EXPECT_EQ(links_->downs({network_->router_of(3), network_->port_of(3)}), 1U);
}

TEST_F(LinksTest, NothingLeaksWhateverHappensWhen) {
  SCOPED_TRACE(seed_);
  for (int event = 0; event < 4000 && !HasFailure(); ++event) {
    anything();
    step(prng_.below(3) == 0 ? prng_.below(400) : prng_.below(20));
    edge_->submit(inbox_);
    hear();
  }
  for (int turn = 0; turn < 50; ++turn) {
    run(500);
    hear();
  }
  std::uint64_t hops = 0;
  for (const auto& [key, connection] : connections_) {
    EXPECT_EQ(connection.state, State::held);
    hops += network_->path(key.first, connection.dest).size();
  }
  EXPECT_EQ(bookings(), hops);
  EXPECT_GT(asked_again_, 0U);
  EXPECT_EQ(edge_->in_flight(), 0U);
  EXPECT_EQ(memory_.free_count(pool_), 256U);
  for (const auto& [key, connection] : connections_) {
    give_back(key);
    run(100);
  }
  run(20'000);
  EXPECT_EQ(bookings(), 0U);
}

}  // namespace
}  // namespace fabric
