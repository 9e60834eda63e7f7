// Connections that either end takes back before they stand: a disconnect, or an id destroyed,
// between REP and RTU, whichever message is lost. Both ends hear of it, in seconds.
#include <gtest/gtest.h>
#include <rdma/rdma_user_cm.h>

#include <cerrno>
#include <cstdint>

#include "tests/unit/hca/cm/pair.h"

namespace {

using namespace cm_test;

constexpr emu::EmuNs kRepeatNs = 5'000'000'000;  // a message is said again before

class CmHasty : public CmTest {
 protected:
  // a has accepted, and b's program has its answer.
  Joined answered() {
    const Joined j = request();
    EXPECT_EQ(a.accept(j.server, 11), 0);
    carry();
    EXPECT_EQ(b.event().event, kConnectResponse);
    return j;
  }
  // Late packets are gone, and so is the id.
  void expect_over(Node& node, std::uint32_t id) {
    wait(kRepeatNs);
    EXPECT_EQ(node.event().event, kTimewaitExit);
    EXPECT_EQ(node.event().event, ~0u);
    EXPECT_EQ(node.destroy(id), 0);
  }
  // Minutes in which nobody says or hears anything more.
  void expect_silence() {
    for (int i = 0; i < 40; ++i) {
      wait(kRepeatNs);
      EXPECT_TRUE(network.flying.empty());
    }
    EXPECT_EQ(a.event().event, ~0u);
    EXPECT_EQ(b.event().event, ~0u);
  }
  // `told` has heard that `first` ended it, and ends it too.
  void expect_both_end(Node& told, std::uint32_t id, Node& first) {
    ASSERT_EQ(told.disconnect(id), 0);
    carry();
    EXPECT_EQ(first.event().event, kDisconnected);
    expect_over(told, id);
    EXPECT_EQ(first.event().event, kTimewaitExit);
    expect_silence();
  }
};

TEST_F(CmHasty, WhoAskedEndsItBeforeItSaysReady) {
  const Joined j = answered();
  ASSERT_EQ(b.disconnect(j.client), 0);
  carry();
  EXPECT_EQ(b.accept(j.client, 0), EINVAL);
  EXPECT_EQ(a.event().event, kDisconnected);
  expect_both_end(a, j.server, b);
}

// Its DREQ is lost, and the answer is said again meanwhile.
TEST_F(CmHasty, WhoAskedEndsItBeforeItSaysReadyAndIsNotHeard) {
  const Joined j = answered();
  ASSERT_EQ(b.disconnect(j.client), 0);
  carry(1);
  EXPECT_EQ(a.event().event, ~0u);
  wait(kRepeatNs);
  carry();
  EXPECT_EQ(a.event().event, kDisconnected);
  expect_both_end(a, j.server, b);
}

TEST_F(CmHasty, WhoAcceptedEndsItBeforeTheOtherIsReady) {
  const Joined j = answered();
  ASSERT_EQ(a.disconnect(j.server), 0);
  carry();
  EXPECT_EQ(b.event().event, kDisconnected);
  EXPECT_EQ(b.accept(j.client, 0), EINVAL);
  expect_both_end(b, j.client, a);
}

// "Ready" crosses the DREQ: who has said it was never established for the other.
TEST_F(CmHasty, WhoAcceptedEndsItAsTheOtherSaysReady) {
  const Joined j = answered();
  ASSERT_EQ(a.disconnect(j.server), 0);
  ASSERT_EQ(b.accept(j.client, 0), 0);
  carry();
  EXPECT_EQ(a.event().event, ~0u);
  EXPECT_EQ(b.event().event, kDisconnected);
  expect_both_end(b, j.client, a);
}

TEST_F(CmHasty, BothEndItBeforeItStands) {
  const Joined j = answered();
  ASSERT_EQ(a.disconnect(j.server), 0);
  ASSERT_EQ(b.disconnect(j.client), 0);
  carry();
  EXPECT_EQ(a.event().event, kDisconnected);
  EXPECT_EQ(b.event().event, kDisconnected);
  expect_over(a, j.server);
  EXPECT_EQ(b.event().event, kTimewaitExit);
  expect_silence();
}

// The answer was lost, and its sender ends what the other has never heard of: it had been bidden
// wait a minute, and hears at once that nothing comes of it.
TEST_F(CmHasty, WhatIsEndedBeforeItsAnswerArrivesIsRefused) {
  for (const bool destroyed : {false, true}) {
    const Joined j = request();
    wait(kRepeatNs);
    carry();  // the request again: MRA
    ASSERT_EQ(a.accept(j.server, 11), 0);
    network.flying.clear();
    ASSERT_EQ(destroyed ? a.destroy(j.server) : a.disconnect(j.server), 0);
    carry();
    const auto event = b.event();
    EXPECT_EQ(event.event, kRejected);
    EXPECT_EQ(event.status, 10u);  // stale
    EXPECT_EQ(b.disconnect(j.client), 0);
    if (!destroyed) {
      EXPECT_EQ(a.event().event, kDisconnected);
      expect_over(a, j.server);
    }
    expect_silence();
    EXPECT_EQ(b.destroy(j.client), 0);
    EXPECT_EQ(a.destroy(j.listener), 0);
  }
}

// A DREQ of another connection than the one that is asked for: it names another QP.
TEST_F(CmHasty, ADisconnectOfAnotherConnectionEndsNoRequest) {
  const Joined j = request();
  hca::CmMessage m;
  m.kind = hca::CmKind::dreq;
  m.life = kLifeOfA;
  m.local_id = (j.server + 1) ^ kLifeOfA;
  m.remote_id = j.client ^ kLifeOfB;
  m.qpn = 0x77;
  b.cm.receive(0, hca::to_mad(m), b.now);
  EXPECT_EQ(b.event().event, ~0u);
  ASSERT_EQ(a.accept(j.server, 11), 0);
  carry();
  EXPECT_EQ(b.event().event, kConnectResponse);
}

}  // namespace
