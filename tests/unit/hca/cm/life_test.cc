// A node's hcad starts anew, and its ids count from the beginning: what the other node still knows
// of the old life ends, and nothing of the old life is taken for the new one's.
#include <gtest/gtest.h>
#include <rdma/rdma_user_cm.h>

#include <cstdint>

#include "tests/unit/hca/cm/pair.h"

namespace {

using namespace cm_test;

constexpr std::uint32_t kLater = 0x20000001;

class CmLife : public CmTest {
 protected:
  std::uint32_t ask(Node& node, std::uint16_t port_space, std::uint16_t port) {
    const std::uint32_t id = node.create(port_space, 30);
    EXPECT_EQ(node.resolve(id, kFirst, port), 0);
    EXPECT_EQ(node.connect(id, 0x44), 0);
    return id;
  }
  // The next event of a is a request, which a accepts; both know that they are connected.
  void accepted(Node& server, Node& client, std::uint32_t id) {
    const auto request = server.event();
    ASSERT_EQ(request.event, kConnectRequest);
    ASSERT_EQ(server.accept(request.id, 12), 0);
    carry();
    ASSERT_EQ(client.event().event, kConnectResponse);
    ASSERT_EQ(client.accept(id, 0), 0);
    carry();
    const auto event = server.event();
    EXPECT_EQ(event.event, kEstablished);
    EXPECT_EQ(event.uid, 12u);
  }
};

TEST_F(CmLife, ARequestOfANewLifeIsServedAndEndsTheOldConnection) {
  const Joined j = join();
  Node again{network, 1, kLater};
  nodes[1] = &again;
  const std::uint32_t client = ask(again, RDMA_PS_TCP, 7471);
  ASSERT_EQ(client, j.client);  // the same number
  carry();
  const auto over = a.event();
  EXPECT_EQ(over.event, kDisconnected);
  EXPECT_EQ(over.uid, 11u);
  accepted(a, again, client);
  EXPECT_EQ(a.disconnect(j.server), 0);
  carry();
  EXPECT_EQ(again.event().event, ~0u);  // the new connection has not heard of it
  wait(1'000'000'000);
  EXPECT_EQ(a.event().event, kTimewaitExit);
  EXPECT_EQ(a.event().event, ~0u);
}

TEST_F(CmLife, AQuestionOfANewLifeIsAnsweredAnew) {
  const std::uint32_t listener = a.create(RDMA_PS_UDP, 10);
  ASSERT_EQ(a.bind(listener, 0, 7174), 0);
  ASSERT_EQ(a.listen(listener), 0);
  const std::uint32_t first = ask(b, RDMA_PS_UDP, 7174);
  carry();
  ASSERT_EQ(a.accept(a.event().id, 11), 0);
  carry();
  ASSERT_EQ(b.event().event, kEstablished);
  Node again{network, 1, kLater};
  nodes[1] = &again;
  const std::uint32_t second = ask(again, RDMA_PS_UDP, 7174);
  ASSERT_EQ(second, first);
  carry();
  EXPECT_EQ(again.event().event, ~0u);  // not the answer of the old life
  const auto request = a.event();
  ASSERT_EQ(request.event, kConnectRequest);
  ASSERT_EQ(a.accept(request.id, 12), 0);
  carry();
  EXPECT_EQ(again.event().event, kEstablished);
}

TEST_F(CmLife, AnAnswerToAnOldLifeIsNotTakenForTheNewOnes) {
  const Joined j = request();
  ASSERT_EQ(a.accept(j.server, 11), 0);  // REP, on its way
  Node again{network, 1, kLater};
  nodes[1] = &again;
  const std::uint32_t client = ask(again, RDMA_PS_TCP, 7471);
  ASSERT_EQ(client, j.client);
  carry();
  EXPECT_EQ(again.event().event, ~0u);
  const auto over = a.event();
  EXPECT_EQ(over.event, kDisconnected);
  EXPECT_EQ(over.uid, 11u);
  accepted(a, again, client);
}

TEST_F(CmLife, AServiceAnswerToAnOldLifeIsNotTakenForTheNewOnes) {
  const std::uint32_t listener = a.create(RDMA_PS_UDP, 10);
  ASSERT_EQ(a.bind(listener, 0, 7174), 0);
  ASSERT_EQ(a.listen(listener), 0);
  (void)ask(b, RDMA_PS_UDP, 7174);
  carry();
  ASSERT_EQ(a.accept(a.event().id, 11), 0);  // SIDR_REP, on its way
  Node again{network, 1, kLater};
  nodes[1] = &again;
  (void)ask(again, RDMA_PS_UDP, 7174);
  carry();
  EXPECT_EQ(again.event().event, ~0u);
  EXPECT_EQ(a.event().event, kConnectRequest);
}

TEST_F(CmLife, WhatAnOldLifeSaidComesTooLate) {
  const Joined j = join();
  Node again{network, 1, kLater};
  nodes[1] = &again;
  const std::uint32_t client = ask(again, RDMA_PS_TCP, 7471);
  carry();
  EXPECT_EQ(a.event().event, kDisconnected);
  accepted(a, again, client);
  const std::size_t ids = a.cm.ids();
  EXPECT_EQ(b.disconnect(j.client), 0);  // DREQ of the old life
  (void)ask(b, RDMA_PS_TCP, 7471);       // REQ of the old life
  carry();
  EXPECT_EQ(a.event().event, ~0u);
  EXPECT_EQ(again.event().event, ~0u);
  EXPECT_EQ(a.cm.ids(), ids);
}

TEST_F(CmLife, ARequestThatWaitedForAListenerEndsWithItsLife) {
  (void)ask(b, RDMA_PS_TCP, 7471);
  carry();
  Node again{network, 1, kLater};
  nodes[1] = &again;
  (void)ask(again, RDMA_PS_TCP, 7471);
  carry();
  const std::uint32_t listener = a.create(RDMA_PS_TCP, 10);
  ASSERT_EQ(a.bind(listener, 0, 7471), 0);
  ASSERT_EQ(a.listen(listener), 0);
  EXPECT_EQ(a.event().event, kConnectRequest);
  EXPECT_EQ(a.event().event, ~0u);
}

TEST_F(CmLife, AServerOfANewLifeEndsConnectionsWithTheOldOne) {
  const Joined j = join();
  Node again{network, 0, kLater};
  nodes[0] = &again;
  const std::uint32_t listener = again.create(RDMA_PS_TCP, 10);
  ASSERT_EQ(again.bind(listener, 0, 7471), 0);
  ASSERT_EQ(again.listen(listener), 0);
  const std::uint32_t client = ask(b, RDMA_PS_TCP, 7471);
  carry();
  const auto over = b.event();
  EXPECT_EQ(over.event, kDisconnected);
  EXPECT_EQ(over.uid, 20u);
  EXPECT_EQ(b.disconnect(j.client), 0);
  carry();
  accepted(again, b, client);
}

// The old life had heard the request; its answer would have come from a program that is gone.
TEST_F(CmLife, ARequestThatAnOldLifeHeardIsAskedOfTheNewOne) {
  (void)request();
  Node again{network, 0, kLater};
  nodes[0] = &again;
  const std::uint32_t listener = again.create(RDMA_PS_TCP, 10);
  ASSERT_EQ(again.bind(listener, 0, 7471), 0);
  ASSERT_EQ(again.listen(listener), 0);
  wait(5'000'000'000);
  carry();
  EXPECT_EQ(again.event().event, kConnectRequest);
}

// Whatever the new life says first, the wait that the old one asked for is over, be it the last.
TEST_F(CmLife, NobodyWaitsForAnOldLife) {
  (void)request();
  for (int i = 0; i < 15; ++i) {
    wait(70'000'000'000);
    carry();
  }
  Node again{network, 0, kLater};
  nodes[0] = &again;
  const std::uint32_t listener = again.create(RDMA_PS_TCP, 10);
  ASSERT_EQ(again.bind(listener, 0, 7471), 0);
  ASSERT_EQ(again.listen(listener), 0);
  const std::uint32_t other = again.create(RDMA_PS_TCP, 31);
  ASSERT_EQ(again.resolve(other, kFirst + 1, 7471), 0);
  ASSERT_EQ(again.connect(other), 0);
  carry();
  wait(0);
  carry();
  EXPECT_EQ(b.event().event, ~0u);
  EXPECT_EQ(again.event().event, kConnectRequest);
}

// A request that the program saw but had not answered: its peer is gone, nothing is sent there.
TEST_F(CmLife, ARequestOfAnOldLifeCannotBeAccepted) {
  const Joined j = request();
  Node again{network, 1, kLater};
  nodes[1] = &again;
  const std::uint32_t client = ask(again, RDMA_PS_TCP, 7471);
  carry();
  EXPECT_EQ(a.accept(j.server, 11), EINVAL);
  EXPECT_EQ(a.destroy(j.server), 0);
  carry();
  EXPECT_EQ(again.event().event, ~0u);
  accepted(a, again, client);
}

// What was learned of a service stays learned: it is no connection.
TEST_F(CmLife, AServiceOfAnOldLifeIsNoDisconnect) {
  const std::uint32_t listener = a.create(RDMA_PS_UDP, 10);
  ASSERT_EQ(a.bind(listener, 0, 7174), 0);
  ASSERT_EQ(a.listen(listener), 0);
  (void)ask(b, RDMA_PS_UDP, 7174);
  carry();
  ASSERT_EQ(a.accept(a.event().id, 11), 0);
  carry();
  ASSERT_EQ(b.event().event, kEstablished);
  Node again{network, 0, kLater};
  nodes[0] = &again;
  const std::uint32_t other = again.create(RDMA_PS_TCP, 31);
  ASSERT_EQ(again.resolve(other, kFirst + 1, 7471), 0);
  ASSERT_EQ(again.connect(other), 0);
  carry();
  EXPECT_EQ(b.event().event, ~0u);
}

}  // namespace
