// Ids that are destroyed while their last word is on its way: nobody waits for ever for a DREQ that
// was lost, and no program fills the node with what it leaves.
#include <gtest/gtest.h>
#include <rdma/rdma_user_cm.h>

#include <algorithm>
#include <cstdint>
#include <set>
#include <vector>

#include "tests/unit/hca/cm/pair.h"

namespace {

using namespace cm_test;

constexpr emu::EmuNs kPatienceNs = 5'000'000'000;  // more than a message waits for its answer
constexpr int kTimes = 4;                          // that a DREQ is said again

class CmFarewell : public CmTest {
 protected:
  // DREQs that are on their way, all of them lost.
  std::size_t lost() {
    const std::size_t said = network.flying.size();
    for (const Flying& one : network.flying) {
      const auto message = hca::parse(one.mad);
      EXPECT_TRUE(message && message->kind == hca::CmKind::dreq);
    }
    network.flying.clear();
    return said;
  }
  void expect_silence() {
    for (int i = 0; i < kTimes + 2; ++i) {
      wait(kPatienceNs);
      EXPECT_EQ(lost(), 0u);
    }
  }
  // a hears that it is over, and says so.
  void expect_heard(const Joined& j) {
    EXPECT_EQ(a.event().event, ~0u);
    wait(kPatienceNs);
    carry();
    const auto event = a.event();
    EXPECT_EQ(event.event, kDisconnected);
    EXPECT_EQ(event.uid, 11u);
    EXPECT_EQ(a.disconnect(j.server), 0);
    carry();
    expect_silence();
  }
  void serve() {
    const std::uint32_t listener = a.create(RDMA_PS_TCP, 10);
    ASSERT_EQ(a.bind(listener, 0, 7471), 0);
    ASSERT_EQ(a.listen(listener, 1), 0);
  }
  // Of a client of its own, with that listener.
  std::uint32_t connection(Node& client) {
    const std::uint32_t id = client.create(RDMA_PS_TCP, 20);
    EXPECT_EQ(client.resolve(id, kFirst, 7471), 0);
    EXPECT_EQ(client.connect(id), 0);
    carry();
    EXPECT_EQ(a.accept(a.event().id, 11), 0);
    carry();
    EXPECT_EQ(client.event().event, kConnectResponse);
    EXPECT_EQ(client.accept(id, 0), 0);
    carry();
    EXPECT_EQ(a.event().event, kEstablished);
    return id;
  }
  // `many` connections of one program, destroyed while nothing arrives.
  void leave(Node& client, std::uint32_t many) {
    std::vector<std::uint32_t> ids;
    for (std::uint32_t i = 0; i < many; ++i) ids.push_back(connection(client));
    for (const std::uint32_t id : ids) EXPECT_EQ(client.destroy(id), 0);
    EXPECT_EQ(lost(), many);
  }
};

TEST_F(CmFarewell, ADisconnectThatIsLostIsSaidAgainForAnIdThatIsGone) {
  const Joined j = join();
  ASSERT_EQ(b.disconnect(j.client), 0);
  ASSERT_EQ(b.destroy(j.client), 0);
  EXPECT_EQ(b.cm.ids(), 0u);
  EXPECT_EQ(lost(), 1u);
  expect_heard(j);
}

TEST_F(CmFarewell, SoIsThatOfAnIdThatIsDestroyedOnly) {
  const Joined j = join();
  ASSERT_EQ(b.destroy(j.client), 0);
  EXPECT_EQ(lost(), 1u);
  expect_heard(j);
}

TEST_F(CmFarewell, SoIsThatOfAProgramThatEnds) {
  const Joined j = join();
  b.cm.close(b.file);
  EXPECT_EQ(lost(), 1u);
  expect_heard(j);
}

TEST_F(CmFarewell, WhoHasAcceptedAndEndsIsHeard) {
  const Joined j = request();
  ASSERT_EQ(a.accept(j.server, 11), 0);
  carry();
  ASSERT_EQ(a.destroy(j.server), 0);
  EXPECT_EQ(lost(), 1u);
  wait(kPatienceNs);
  carry();
  EXPECT_EQ(b.event().event, kConnectResponse);
  EXPECT_EQ(b.event().event, kDisconnected);
}

TEST_F(CmFarewell, WhoIsNeverAnsweredStops) {
  const Joined j = join();
  ASSERT_EQ(b.destroy(j.client), 0);
  EXPECT_EQ(lost(), 1u);
  for (int i = 0; i < kTimes; ++i) {
    wait(kPatienceNs);
    EXPECT_EQ(lost(), 1u);
  }
  expect_silence();
}

// What the id had said before it was destroyed counts.
TEST_F(CmFarewell, ADestroyedIdSaysNoMoreThanOneThatWaits) {
  const Joined j = join();
  ASSERT_EQ(b.disconnect(j.client), 0);
  wait(kPatienceNs);
  EXPECT_EQ(lost(), 2u);
  ASSERT_EQ(b.destroy(j.client), 0);
  for (int i = 1; i < kTimes; ++i) {
    wait(kPatienceNs);
    EXPECT_EQ(lost(), 1u);
  }
  expect_silence();
}

TEST_F(CmFarewell, BothEndsAtOnce) {
  const Joined j = join();
  ASSERT_EQ(a.destroy(j.server), 0);
  ASSERT_EQ(b.destroy(j.client), 0);
  EXPECT_EQ(lost(), 2u);
  wait(kPatienceNs);
  EXPECT_EQ(network.flying.size(), 2u);
  carry();
  expect_silence();
}

TEST_F(CmFarewell, APeerThatStartsAnewIsToldNothing) {
  const Joined j = join();
  ASSERT_EQ(b.destroy(j.client), 0);
  EXPECT_EQ(lost(), 1u);
  Node again{network, 0, kLifeOfA + 1};
  nodes[0] = &again;
  const std::uint32_t other = again.create(RDMA_PS_TCP, 31);
  ASSERT_EQ(again.resolve(other, kFirst + 1, 7471), 0);
  ASSERT_EQ(again.connect(other), 0);
  carry();
  ASSERT_EQ(again.destroy(other), 0);
  carry();
  expect_silence();
}

// Only the peer's own answer ends it.
TEST_F(CmFarewell, AnAnswerOfAnotherIsNone) {
  const Joined j = join();
  ASSERT_EQ(b.destroy(j.client), 0);
  EXPECT_EQ(lost(), 1u);
  hca::CmMessage m;
  m.kind = hca::CmKind::drep;
  m.life = kLifeOfA;
  m.local_id = (j.server + 1) ^ kLifeOfA;
  m.remote_id = j.client ^ kLifeOfB;
  b.cm.receive(0, hca::to_mad(m), b.now);
  m.life = kLifeOfB;
  m.local_id = j.server ^ kLifeOfA;
  b.cm.receive(1, hca::to_mad(m), b.now);
  wait(kPatienceNs);
  EXPECT_EQ(network.flying.size(), 1u);
  network.flying.clear();
  m.life = kLifeOfA;
  b.cm.receive(0, hca::to_mad(m), b.now);
  expect_silence();
}

// The peer knows a connection by that number still: nobody else gets it.
TEST_F(CmFarewell, ANumberIsNotGivenAgainBeforeItsLastWordWasHeard) {
  Node small{network, 1, kLifeOfB + 1, {.ids_max = 8, .ids_of_program_max = 8}};
  nodes[1] = &small;
  serve();
  const std::uint32_t gone = connection(small);
  ASSERT_EQ(small.destroy(gone), 0);
  EXPECT_EQ(lost(), 1u);
  for (int i = 0; i < 100; ++i) {
    const std::uint32_t id = small.create(RDMA_PS_TCP, 20);
    EXPECT_NE(id, gone);
    ASSERT_EQ(small.destroy(id), 0);
  }
}

// A program that leaves more connections than its share harms itself, nobody else.
TEST_F(CmFarewell, OneProgramLeavesNoMoreThanItsShare) {
  constexpr std::uint32_t kShare = 4;
  Node small{network, 1, kLifeOfB + 1, {.ids_of_program_max = kShare}};
  nodes[1] = &small;
  serve();
  leave(small, kShare);
  leave(small, 1);  // has no room any more
  small.file = small.cm.open(kProgram + 1);
  leave(small, 1);
  wait(kPatienceNs);
  EXPECT_EQ(lost(), kShare + 1);
  for (int i = 0; i < kTimes; ++i) wait(kPatienceNs);
  network.flying.clear();
  small.file = small.cm.open(kProgram);
  leave(small, kShare);  // there is room again
  wait(kPatienceNs);
  EXPECT_EQ(lost(), kShare);
}

// What is to be said again at once goes in turns, so that it fits where it has to wait.
TEST_F(CmFarewell, ManyAreSaidAgainInTurns) {
  constexpr std::uint32_t kMany = 300;
  serve();
  leave(b, kMany);
  for (int i = 0; i < kTimes; ++i) {
    std::set<std::uint32_t> said;
    wait(kPatienceNs);
    for (int turn = 0; turn < 10 && said.size() < kMany; ++turn) {
      EXPECT_GT(network.flying.size(), 0u);
      EXPECT_LE(network.flying.size(), hca::kMadsWaitingMax / 4);
      for (const Flying& one : network.flying) said.insert(hca::parse(one.mad)->local_id);
      network.flying.clear();
      wait(1000);
    }
    EXPECT_EQ(said.size(), kMany);
    EXPECT_EQ(lost(), 0u);
  }
  expect_silence();
}

// A turn says what is due, first what was due first, and looks at no others.
TEST_F(CmFarewell, WhatIsDueFirstIsSaidFirst) {
  constexpr std::uint32_t kMany = 40;
  serve();
  std::vector<std::uint32_t> ids;
  for (std::uint32_t i = 0; i < kMany; ++i) ids.push_back(connection(b));
  std::vector<std::uint32_t> ended;
  for (std::uint32_t i = 0; i < kMany; ++i) {
    ended.push_back(ids[i * 7 % kMany]);
    ++b.now;
    ASSERT_EQ(b.destroy(ended.back()), 0);
  }
  EXPECT_EQ(lost(), kMany);
  for (int i = 0; i < kTimes; ++i) {
    b.now += kPatienceNs;
    b.cm.advance(b.now);
    std::vector<std::uint32_t> said;
    for (const Flying& one : network.flying)
      said.push_back(hca::parse(one.mad)->local_id ^ kLifeOfB);
    EXPECT_EQ(said, ended);
    network.flying.clear();
    // They are all due at one time from now on.
    std::ranges::sort(ended);
  }
}

}  // namespace
