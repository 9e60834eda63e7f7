// The state machine where something goes wrong: messages for ids that are gone or over, events that
// are taken back, what nodes and programs say that do not mean well.
#include <gtest/gtest.h>
#include <rdma/rdma_user_cm.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <ctime>

#include "tests/unit/hca/cm/pair.h"

namespace {

using namespace cm_test;

class CmStates : public CmTest {
 protected:
  // a serves UD at 7174 and has seen b's question: (listener, a's id, b's id).
  Joined question() {
    Joined j = asked(RDMA_PS_UDP, 7174, 0x33);
    carry();
    const auto event = a.event();
    EXPECT_EQ(event.event, kConnectRequest);
    j.server = event.id;
    return j;
  }
};

TEST_F(CmStates, ReadyToAnIdThatIsGoneIsADisconnect) {
  const Joined j = request();
  ASSERT_EQ(a.accept(j.server, 11), 0);
  carry();
  ASSERT_EQ(b.event().event, kConnectResponse);
  ASSERT_EQ(a.destroy(j.server), 0);
  network.flying.clear();  // its DREQ is lost
  ASSERT_EQ(b.accept(j.client, 0), 0);
  carry();
  EXPECT_EQ(b.event().event, kDisconnected);
  EXPECT_EQ(b.disconnect(j.client), 0);
  wait(1'000'000'000);
  EXPECT_EQ(b.event().event, kTimewaitExit);
}

TEST_F(CmStates, AnAnswerToAnIdThatIsGoneIsRefused) {
  const Joined j = request();
  ASSERT_EQ(b.destroy(j.client), 0);
  network.flying.clear();  // what it said is lost
  ASSERT_EQ(a.accept(j.server, 11), 0);
  carry();
  const auto event = a.event();
  EXPECT_EQ(event.event, kRejected);
  EXPECT_EQ(event.status, 6u);  // invalid communication id
}

TEST_F(CmStates, AnAnswerThatComesAgainAfterItsRefusalIsRefusedAgain) {
  const Joined j = request();
  ASSERT_EQ(a.accept(j.server, 11), 0);
  carry();
  ASSERT_EQ(b.event().event, kConnectResponse);
  ASSERT_EQ(b.reject(j.client, 2), 0);
  carry(1);  // REJ is lost
  wait(5'000'000'000);
  carry();
  const auto event = a.event();
  EXPECT_EQ(event.event, kRejected);
  EXPECT_EQ(event.status, 28u);
  EXPECT_EQ(event.param.conn.private_data[1], 9);
}

TEST_F(CmStates, ARequestThatComesAgainAfterItsRefusalIsRefusedAgain) {
  (void)asked();
  const Flying first = network.flying.front();
  network.flying.pop_front();
  a.cm.receive(first.from, first.mad, a.now);
  const auto seen = a.event();
  ASSERT_EQ(seen.event, kConnectRequest);
  ASSERT_EQ(a.reject(seen.id, 2), 0);
  network.flying.clear();  // MRA and REJ are lost
  wait(5'000'000'000);
  carry();
  const auto event = b.event();
  EXPECT_EQ(event.event, kRejected);
  EXPECT_EQ(event.status, 28u);
  EXPECT_EQ(event.param.conn.private_data[1], 9);
  EXPECT_EQ(a.event().event, ~0u);
}

// As with the kernel a request ends with the answer that fails, whatever its program does then: who
// asked need not wait for it.
TEST_F(CmStates, AnAcceptThatFailsRefusesTheRequest) {
  const Joined j = request();
  ASSERT_EQ(a.accept(j.server, 11, 197), EINVAL);  // more than a REP has room for
  carry();
  const auto event = b.event();
  EXPECT_EQ(event.event, kRejected);
  EXPECT_EQ(event.status, 28u);  // by the program
  EXPECT_EQ(a.accept(j.server, 11, 196), EINVAL);
  EXPECT_EQ(a.reject(j.server, 0), EINVAL);
  EXPECT_TRUE(network.flying.empty());
  EXPECT_EQ(a.destroy(j.server), 0);
  EXPECT_TRUE(network.flying.empty());
}

TEST_F(CmStates, AnAcceptWithoutParametersRefusesTheRequest) {
  const Joined j = request();
  ASSERT_EQ(a.accept(j.server, 0), EINVAL);
  network.flying.clear();  // its REJ is lost: it is said again
  wait(5'000'000'000);
  carry();
  EXPECT_EQ(b.event().event, kRejected);
  EXPECT_EQ(a.event().event, ~0u);
}

TEST_F(CmStates, AnAcceptThatFailsRefusesTheQuestion) {
  const Joined j = question();
  ASSERT_EQ(a.accept(j.server, 11, 137), EINVAL);  // more than a SIDR_REP has room for
  carry();
  const auto event = b.event();
  EXPECT_EQ(event.event, kUnreachable);
  EXPECT_EQ(event.status, 2u);  // rejected
  EXPECT_EQ(a.accept(j.server, 11), EINVAL);
}

// Who was heard once has no promise of an answer: it asks again as soon as anybody.
TEST_F(CmStates, ARefusalThatIsLostIsHeardSoon) {
  const Joined j = request();
  ASSERT_EQ(a.reject(j.server, 2), 0);
  network.flying.clear();
  wait(5'000'000'000);
  carry();
  EXPECT_EQ(b.event().event, kRejected);
}

// A program that thinks about a request for long is not asked every few seconds.
TEST_F(CmStates, WhoHasAskedTwiceWaitsAMinute) {
  (void)request();
  wait(5'000'000'000);
  EXPECT_EQ(network.flying.size(), 1U);
  carry();
  wait(60'000'000'000);
  EXPECT_TRUE(network.flying.empty());
  wait(10'000'000'000);
  EXPECT_EQ(network.flying.size(), 1U);
}

// Its answers were lost, all of them, and it gave up: who asks again need not wait as long.
TEST_F(CmStates, ARequestThatWasGivenUpIsRefused) {
  const Joined j = request();
  wait(5'000'000'000);
  carry();  // the request again: it is bidden wait
  ASSERT_EQ(a.accept(j.server, 11), 0);
  for (int i = 0; i < 16; ++i) {
    network.flying.clear();
    wait(5'000'000'000);
  }
  EXPECT_EQ(a.event().event, kUnreachable);
  EXPECT_EQ(b.event().event, ~0u);
  carry();  // the last REQ
  const auto event = b.event();
  EXPECT_EQ(event.event, kRejected);
  EXPECT_EQ(event.status, 10u);  // stale
}

// A REJ that names another end than ours, as one that comes late for a connection before.
TEST_F(CmStates, ARefusalOfAnotherConnectionIsNotOurs) {
  const Joined j = join();
  hca::CmMessage m;
  m.kind = hca::CmKind::rej;
  m.life = kLifeOfA;
  m.local_id = (j.server + 1) ^ kLifeOfA;
  m.remote_id = j.client ^ kLifeOfB;
  m.reason = 6;
  b.cm.receive(0, hca::to_mad(m), b.now);
  EXPECT_EQ(b.event().event, ~0u);
  m.local_id = j.server ^ kLifeOfA;
  b.cm.receive(0, hca::to_mad(m), b.now);
  EXPECT_EQ(b.event().event, kDisconnected);
}

// A question for the service of UD where somebody listens for connections finds nobody.
TEST_F(CmStates, AQuestionToAListenerForConnectionsIsRefused) {
  const std::uint32_t listener = a.create(RDMA_PS_TCP, 10);
  ASSERT_EQ(a.bind(listener, 0, 7174), 0);
  ASSERT_EQ(a.listen(listener), 0);
  hca::CmMessage m;
  m.kind = hca::CmKind::sidr_req;
  m.life = kLifeOfB;
  m.local_id = 1 ^ kLifeOfB;
  m.service_id = std::uint64_t{RDMA_PS_TCP} << 16 | 7174;
  a.cm.receive(1, hca::to_mad(m), a.now);
  EXPECT_EQ(a.event().event, ~0u);
  EXPECT_EQ(a.cm.ids(), 1u);
}

// A node that the configuration does not know has no address here.
TEST_F(CmStates, ANodeThatIsNotThereIsNotHeard) {
  const Joined j = request();
  hca::CmMessage m;
  m.kind = hca::CmKind::sidr_req;
  m.service_id = std::uint64_t{RDMA_PS_UDP} << 16 | 1;
  network.flying.clear();
  a.cm.receive(2, hca::to_mad(m), a.now);
  wait(300'000'000);
  EXPECT_TRUE(network.flying.empty());
  EXPECT_EQ(a.accept(j.server, 11), 0);
}

// A program may end a request whose event waits, if it guesses its number: its place is free again.
TEST_F(CmStates, ARequestThatEndsUnseenLeavesItsPlace) {
  const std::uint32_t listener = a.create(RDMA_PS_TCP, 10);
  ASSERT_EQ(a.bind(listener, 0, 7471), 0);
  ASSERT_EQ(a.listen(listener, 1), 0);
  for (std::uint32_t i = 0; i < 2; ++i) {
    const std::uint32_t client = b.create(RDMA_PS_TCP, 20 + i);
    ASSERT_EQ(b.resolve(client, kFirst, 7471), 0);
    ASSERT_EQ(b.connect(client), 0);
    carry();
    if (i == 0) {
      ASSERT_EQ(a.destroy(listener + 1), 0);
    }
  }
  EXPECT_EQ(a.event().event, kConnectRequest);
}

TEST_F(CmStates, ARefusedQuestionBringsItsData) {
  const Joined j = question();
  EXPECT_EQ(a.reject(j.server, 137), EINVAL);  // more than a SIDR_REP has room for
  ASSERT_EQ(a.reject(j.server, 136), 0);
  carry();
  const auto event = b.event();
  EXPECT_EQ(event.event, kUnreachable);
  EXPECT_EQ(event.status, 2u);  // rejected
  EXPECT_EQ(event.param.ud.private_data_len, 136);
  EXPECT_EQ(event.param.ud.private_data[1], 9);
}

// A channel is readable if and only if an event waits: each way in which one goes away.
TEST_F(CmStates, AnEventThatIsTakenBackIsNotReadable) {
  const std::uint32_t id = a.create(RDMA_PS_UDP, 10);
  ASSERT_EQ(a.resolve(id, 0xef010101, 0), 0);
  EXPECT_FALSE(a.readable[a.file]);
  std::uint32_t group = 0;
  ASSERT_EQ(a.join(id, 0xef010101, group), 0);
  EXPECT_TRUE(a.readable[a.file]);
  ASSERT_EQ(a.leave(group), 0);
  EXPECT_FALSE(a.readable[a.file]);
  ASSERT_EQ(a.join(id, 0xef010101, group), 0);
  ASSERT_EQ(a.destroy(id), 0);
  EXPECT_FALSE(a.readable[a.file]);
}

TEST_F(CmStates, AnEventThatMovesMakesTheOtherFileReadable) {
  const Joined j = join();
  EXPECT_FALSE(a.readable[a.file]);
  ASSERT_EQ(b.disconnect(j.client), 0);
  carry();
  EXPECT_TRUE(a.readable[a.file]);
  const hca::CmFileId old = a.file;
  a.file = a.cm.open(kProgram);
  ASSERT_EQ(a.migrate(j.server, old), 0);
  EXPECT_FALSE(a.readable[old]);
  EXPECT_TRUE(a.readable[a.file]);
  EXPECT_EQ(a.event().event, kDisconnected);
  EXPECT_FALSE(a.readable[a.file]);
}

TEST_F(CmStates, OfTwoEventsOneStaysReadable) {
  const std::uint32_t first = a.create(RDMA_PS_UDP, 10);
  const std::uint32_t second = a.create(RDMA_PS_UDP, 11);
  ASSERT_EQ(a.resolve(first, 0xef010101, 0), 0);
  ASSERT_EQ(a.resolve(second, 0xef010101, 0), 0);
  std::uint32_t group = 0;
  ASSERT_EQ(a.join(first, 0xef010101, group), 0);
  ASSERT_EQ(a.join(second, 0xef010101, group), 0);
  ASSERT_EQ(a.destroy(first), 0);
  EXPECT_TRUE(a.readable[a.file]);
  EXPECT_EQ(a.event().event, kMulticastJoin);
  EXPECT_FALSE(a.readable[a.file]);
}

TEST_F(CmStates, AnIdMovesToWhereItIs) {
  const Joined j = join();
  ASSERT_EQ(b.disconnect(j.client), 0);
  carry();
  EXPECT_EQ(a.migrate(j.server, a.file), 0);
  EXPECT_TRUE(a.readable[a.file]);
  EXPECT_EQ(a.event().event, kDisconnected);
  EXPECT_EQ(a.event().event, ~0u);
}

// Only the program that it belongs to may move an id, whoever guesses the number of its file.
TEST_F(CmStates, AnIdDoesNotMoveToAnotherProgram) {
  const std::uint32_t id = a.create(RDMA_PS_TCP, 10);
  const hca::CmFileId old = a.file;
  a.file = a.cm.open(kProgram + 1);
  EXPECT_EQ(a.migrate(id, old), ENOENT);
  EXPECT_EQ(a.migrate(id, old + 100), ENOENT);
  a.file = a.cm.open(kProgram);
  EXPECT_EQ(a.migrate(id, old), 0);
}

// It goes with its listener, whose event names it.
TEST_F(CmStates, ARequestThatNobodySawDoesNotMove) {
  const Joined j = asked();
  carry();
  const hca::CmFileId old = a.file;
  a.file = a.cm.open(kProgram);
  EXPECT_EQ(a.migrate(j.listener + 1, old), ENOENT);
  a.file = old;
  EXPECT_EQ(a.event().event, kConnectRequest);
  EXPECT_EQ(a.accept(j.listener + 1, 11), 0);
}

// A program that reads no events cannot fill the node with them.
TEST_F(CmStates, AnAddressIsAskedForOnceAtATime) {
  const std::uint32_t id = a.create(RDMA_PS_TCP, 10);
  rdma_ucm_resolve_ip command{};
  command.id = id;
  Node::put(command.dst_addr, 0x0a000001, 1);  // nobody's
  EXPECT_EQ(a.run(RDMA_USER_CM_CMD_RESOLVE_IP, command), 0);
  EXPECT_EQ(a.run(RDMA_USER_CM_CMD_RESOLVE_IP, command), EINVAL);
  EXPECT_EQ(a.event().event, kAddressError);
  EXPECT_EQ(a.event().event, ~0u);
  EXPECT_EQ(a.run(RDMA_USER_CM_CMD_RESOLVE_IP, command), 0);
}

TEST_F(CmStates, ARequestOfAnotherTransportIsRefused) {
  (void)asked();
  auto m = hca::parse(network.flying.front().mad);
  ASSERT_TRUE(m);
  m->transport = 1;  // UC
  network.flying.front().mad = hca::to_mad(*m);
  carry();
  EXPECT_EQ(a.event().event, ~0u);
  const auto event = b.event();
  EXPECT_EQ(event.event, kRejected);
  EXPECT_EQ(event.status, 9u);  // invalid transport service type
}

// Who has learned a service's QP is not connected with it: there is nothing to end, and nobody is
// told. As with the kernel it is no error once there was a question.
TEST_F(CmStates, AServiceIsNoConnection) {
  const Joined j = question();
  ASSERT_EQ(a.accept(j.server, 11), 0);
  carry();
  ASSERT_EQ(b.event().event, kEstablished);
  network.flying.clear();
  EXPECT_EQ(b.disconnect(j.client), 0);
  EXPECT_TRUE(network.flying.empty());
  hca::CmMessage m;
  m.kind = hca::CmKind::dreq;
  m.life = kLifeOfA;
  m.remote_id = j.client ^ kLifeOfB;
  b.cm.receive(0, hca::to_mad(m), b.now);
  EXPECT_EQ(b.event().event, ~0u);
  network.flying.clear();
  EXPECT_EQ(b.destroy(j.client), 0);
  EXPECT_TRUE(network.flying.empty());
}

// A program ends that reads no events, beside one that reads none either. It costs what it had, not
// the square of it: a node that is busy with it for a minute is lost to the fabric.
TEST_F(CmStates, AnEndWithManyIdsIsShort) {
  constexpr std::uint32_t kMany = 20'000;
  Node wide{network, 0, kLifeOfA, {.ids_of_program_max = kMany + 1}};
  const auto group_of = [&](std::uint32_t id, std::uint32_t i) {
    std::uint32_t group = 0;
    ASSERT_EQ(wide.join(id, 0xe0000001 + i, group), 0);
  };
  const auto fill = [&](std::uint16_t first_port) {
    const std::uint32_t one = wide.create(RDMA_PS_UDP, 1);
    ASSERT_EQ(wide.bind(one, kFirst, 0), 0);
    for (std::uint32_t i = 0; i < kMany; ++i) {
      const std::uint32_t id = wide.create(RDMA_PS_UDP, 2 + i);
      ASSERT_EQ(wide.bind(id, kFirst, static_cast<std::uint16_t>(first_port + i)), 0);
      rdma_ucm_resolve_ip command{};
      command.id = id;
      Node::put(command.dst_addr, kFirst + 1, 1);
      ASSERT_EQ(wide.run(RDMA_USER_CM_CMD_RESOLVE_IP, command), 0);
      group_of(i % 2 == 0 ? id : one, i);
    }
  };
  const std::clock_t began = std::clock();
  fill(1);
  const std::size_t beside = wide.cm.ids();
  const hca::CmFileId neighbour = wide.file;
  wide.file = wide.cm.open(kProgram + 1);
  fill(1 + kMany);
  wide.cm.close(wide.file);
  constexpr double kBoundSeconds = 8;  // of this process; the squares take some times as long
  EXPECT_LT(static_cast<double>(std::clock() - began) / CLOCKS_PER_SEC, kBoundSeconds);
  EXPECT_EQ(wide.cm.ids(), beside);
  EXPECT_TRUE(wide.readable[neighbour]);
}

// So is an id's move among many events of others.
TEST_F(CmStates, AMoveAmongManyEventsIsShort) {
  constexpr std::uint32_t kMany = 50'000;
  Node wide{network, 0, kLifeOfA, {.ids_of_program_max = kMany}};
  const std::array<std::uint32_t, 2> ids{wide.create(RDMA_PS_UDP, 1), wide.create(RDMA_PS_UDP, 2)};
  for (const std::uint32_t id : ids) ASSERT_EQ(wide.bind(id, kFirst, 0), 0);
  for (std::uint32_t i = 0; i < kMany; ++i) {
    std::uint32_t group = 0;
    ASSERT_EQ(wide.join(ids[i % 2], 0xe0000001 + i, group), 0);
  }
  const hca::CmFileId old = wide.file;
  wide.file = wide.cm.open(kProgram);
  const std::clock_t began = std::clock();
  ASSERT_EQ(wide.migrate(ids[1], old), 0);
  constexpr double kBoundSeconds = 2;
  EXPECT_LT(static_cast<double>(std::clock() - began) / CLOCKS_PER_SEC, kBoundSeconds);
  std::uint32_t groups = 0;
  while (wide.event().event == kMulticastJoin) ++groups;
  EXPECT_EQ(groups, kMany / 2);
}

// No program takes the node's ids, or its groups, from the others: an eighth of them is its share.
TEST_F(CmStates, OneProgramHasNoMoreThanItsShare) {
  constexpr std::uint32_t kShare = hca::CmOptions{}.ids_of_program_max;
  static_assert(kShare == hca::CmOptions{}.ids_max / 8);
  const rdma_ucm_create_id one{
      .uid = 1, .response = 0, .ps = RDMA_PS_UDP, .qp_type = 4, .reserved = {}};
  rdma_ucm_create_id_resp made{};
  const auto create = [&] { return a.run(RDMA_USER_CM_CMD_CREATE_ID, one, &made, sizeof made); };
  for (std::uint32_t i = 0; i < kShare; ++i) ASSERT_EQ(create(), 0);
  EXPECT_EQ(create(), ENOMEM);
  std::uint32_t group = 0;
  const std::uint32_t last = made.id;
  ASSERT_EQ(a.bind(last, kFirst, 0), 0);
  for (std::uint32_t i = 0; i < kShare; ++i) ASSERT_EQ(a.join(last, 0xe0000001 + i, group), 0);
  std::uint32_t none = 0;
  EXPECT_EQ(a.join(last, 0xe1000000, none), ENOMEM);
  const hca::CmFileId first = a.file;
  a.file = a.cm.open(kProgram);
  EXPECT_EQ(create(), ENOMEM) << "of all its files together";
  a.file = a.cm.open(kProgram + 1);
  EXPECT_EQ(create(), 0) << "a neighbour";
  ASSERT_EQ(a.bind(made.id, kFirst, 0), 0);
  EXPECT_EQ(a.join(made.id, 0xe1000000, none), 0);
  a.file = first;
  EXPECT_EQ(a.leave(group), 0);
  EXPECT_EQ(a.join(last, 0xe1000000, none), 0);
  a.cm.close(first);
  a.file = a.cm.open(kProgram);
  for (std::uint32_t i = 0; i < kShare; ++i) ASSERT_EQ(create(), 0) << "given back";
  EXPECT_EQ(create(), ENOMEM);
}

// A listener's program has no room: whoever asks is not answered, and asks again.
TEST_F(CmStates, ARequestWaitsForTheShareOfItsListenersProgram) {
  Node small{network, 0, kLifeOfA, {.ids_of_program_max = 2}};
  nodes[0] = &small;
  const std::uint32_t listener = small.create(RDMA_PS_TCP, 10);
  ASSERT_EQ(small.bind(listener, 0, 7471), 0);
  ASSERT_EQ(small.listen(listener), 0);
  const std::uint32_t other = small.create(RDMA_PS_TCP, 11);
  const std::uint32_t client = b.create(RDMA_PS_TCP, 20);
  ASSERT_EQ(b.resolve(client, kFirst, 7471), 0);
  ASSERT_EQ(b.connect(client), 0);
  carry();
  EXPECT_EQ(small.event().event, ~0u);
  ASSERT_EQ(small.destroy(other), 0);
  wait(5'000'000'000);
  carry();
  EXPECT_EQ(small.event().event, kConnectRequest);
}

}  // namespace
