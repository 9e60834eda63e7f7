// What programs and two communication managers say to one another when all goes well, when messages
// are lost and when somebody ends.
#include <gtest/gtest.h>
#include <rdma/rdma_user_cm.h>

#include <cerrno>
#include <cstring>
#include <random>
#include <vector>

#include "tests/unit/hca/cm/pair.h"

namespace {

using namespace cm_test;

TEST_F(CmTest, AConnectionFromRequestToTheEndOfTimewait) {
  const Joined j = join();
  EXPECT_EQ(a.disconnect(j.server), 0);
  carry();
  EXPECT_EQ(b.event().event, kDisconnected);
  EXPECT_EQ(b.disconnect(j.client), 0);
  carry();
  EXPECT_EQ(a.event().event, kDisconnected);
  wait(1'000'000'000);
  EXPECT_EQ(a.event().event, kTimewaitExit);
  EXPECT_EQ(b.event().event, kTimewaitExit);
  std::uint32_t reported = 0;
  EXPECT_EQ(a.destroy(j.server, &reported), 0);
  EXPECT_EQ(reported, 3u);  // established, disconnected, timewait: the request was the listener's
  EXPECT_EQ(a.destroy(j.listener, &reported), 0);
  EXPECT_EQ(reported, 1u);
  EXPECT_EQ(b.destroy(j.client), 0);
  EXPECT_EQ(a.cm.ids() + b.cm.ids(), 0u);
}

TEST_F(CmTest, QpsAreToldWhatTheOtherSideSaid) {
  const Joined j = join();
  const auto rtr = a.attributes(j.server, 2);
  const auto rts = b.attributes(j.client, 3);
  EXPECT_EQ(rtr.dest_qp_num, 0x101u);
  EXPECT_EQ(rtr.rq_psn, rts.sq_psn);
  EXPECT_EQ(b.attributes(j.client, 2).rq_psn, a.attributes(j.server, 3).sq_psn);
  EXPECT_EQ(rtr.ah_attr.dlid, 2);
  EXPECT_EQ(rtr.max_dest_rd_atomic, 2);
  EXPECT_EQ(a.attributes(j.server, 3).retry_cnt, 6);
  rdma_ucm_query_route_resp route{};
  EXPECT_EQ(
      a.run(RDMA_USER_CM_CMD_QUERY_ROUTE, rdma_ucm_query{0, j.server, 0}, &route, sizeof route), 0);
  EXPECT_EQ(route.num_paths, 1u);
  EXPECT_EQ(route.ib_route[0].dlid, htons(2));
  sockaddr_in from{};
  std::memcpy(&from, &route.dst_addr, sizeof from);
  EXPECT_EQ(ntohl(from.sin_addr.s_addr), kFirst + 1);
}

// As with the kernel: 0 is a timer that never runs out, and QPs without one take none.
TEST_F(CmTest, TheAckTimeoutIsWhatTheProgramSays) {
  const auto set = [this](std::uint32_t id, std::uint8_t timeout) {
    return b.set(id, RDMA_OPTION_ID_ACK_TIMEOUT, timeout, 1);
  };
  const Joined j = join();
  const int unless_set = b.attributes(j.client, 3).timeout;
  EXPECT_GT(unless_set, 0);
  ASSERT_EQ(set(j.client, 0), 0);
  EXPECT_EQ(b.attributes(j.client, 3).timeout, 0);
  ASSERT_EQ(set(j.client, 21), 0);
  EXPECT_EQ(b.attributes(j.client, 3).timeout, 21);
  EXPECT_EQ(a.attributes(j.server, 3).timeout, unless_set) << "its peer's is its own";
  EXPECT_EQ(b.set(j.client, RDMA_OPTION_ID_ACK_TIMEOUT, 0), EINVAL) << "one byte";
  constexpr std::uint8_t kUc = 3;
  constexpr std::uint8_t kXrcSend = 9;
  constexpr std::uint8_t kXrcRecv = 10;
  EXPECT_EQ(set(b.create(RDMA_PS_UDP, 21), 16), EINVAL);
  EXPECT_EQ(set(b.create(RDMA_PS_IB, 22, kUc), 16), EINVAL);
  EXPECT_EQ(set(b.create(RDMA_PS_IB, 23, kXrcSend), 16), 0);
  EXPECT_EQ(set(b.create(RDMA_PS_IB, 24, kXrcRecv), 16), EINVAL);
}

// What each side says of its vendor's options reaches the other, whose program they are for.
TEST_F(CmTest, EnhancedConnectionEstablishment) {
  for (const std::uint16_t space : {RDMA_PS_TCP, RDMA_PS_UDP}) {
    const std::uint32_t listener = a.create(space, 10);
    a.bind(listener, 0, 7475);
    a.listen(listener);
    const std::uint32_t client = b.create(space, 20);
    ASSERT_EQ(b.resolve(client, kFirst, 7475), 0);
    b.ece = {0x123456, 0x89abcdef};
    ASSERT_EQ(b.connect(client), 0);
    carry();
    const auto request = a.event();
    ASSERT_EQ(request.event, kConnectRequest);
    if (space == RDMA_PS_TCP) {  // a SIDR_REQ has no room for it
      EXPECT_EQ(request.ece.vendor_id, 0x123456u);
      EXPECT_EQ(request.ece.attr_mod, 0x89abcdefu);
    }
    a.ece = {0x00fedcba, 0x77};
    ASSERT_EQ(a.accept(request.id, 11), 0);
    carry();
    const auto answer = b.event();
    ASSERT_EQ(answer.event, space == RDMA_PS_TCP ? kConnectResponse : kEstablished);
    EXPECT_EQ(answer.ece.vendor_id, 0xfedcbau);
    EXPECT_EQ(answer.ece.attr_mod, 0x77u);
  }
}

// A route that a program brings is the computed one, or none.
TEST_F(CmTest, AProgramBringsItsRoute) {
  const std::uint32_t id = b.create(RDMA_PS_TCP, 20);
  rdma_ucm_resolve_ip to{};
  to.id = id;
  Node::put(to.dst_addr, kFirst, 7471);
  std::array<ib_path_rec_data, 2> paths{};
  EXPECT_EQ(b.set_path(id, paths), EINVAL);  // it has no address yet
  ASSERT_EQ(b.run(RDMA_USER_CM_CMD_RESOLVE_IP, to), 0);
  ASSERT_EQ(b.event().event, kAddressResolved);
  rdma_ucm_query_route_resp route{};
  ASSERT_EQ(b.run(RDMA_USER_CM_CMD_QUERY_ROUTE, rdma_ucm_query{0, id, 0}, &route, sizeof route), 0);
  paths[0].flags = IB_PATH_ALTERNATE;
  paths[1].flags = IB_PATH_GMP | IB_PATH_PRIMARY | IB_PATH_BIDIRECTIONAL;
  auto* record = reinterpret_cast<std::uint8_t*>(paths[1].path_rec);
  std::memcpy(record + 8, route.ib_route[0].dgid, 16);
  std::memcpy(record + 24, route.ib_route[0].sgid, 16);
  record[41] = 1;           // DLID
  record[43] = 2;           // SLID
  record[54] = 2 << 6 | 4;  // MTU: exactly 2048
  for (const std::size_t place : {8u, 39u, 41u, 43u, 53u, 54u}) {
    record[place] ^= 1;
    EXPECT_EQ(b.set_path(id, paths), EINVAL) << place;
    record[place] ^= 1;
  }
  EXPECT_EQ(b.set_path(id, std::span(paths).first(1)), EINVAL);
  EXPECT_EQ(b.set_path(id, {}), EINVAL);
  ASSERT_EQ(b.set_path(id, paths), 0);
  EXPECT_EQ(b.event().event, 2u);  // route resolved
  EXPECT_EQ(b.set_path(id, paths), EINVAL);
  EXPECT_EQ(b.connect(id), 0);
}

TEST_F(CmTest, NobodyListensIsARefusal) {
  const std::uint32_t id = b.create(RDMA_PS_TCP, 20);
  ASSERT_EQ(b.resolve(id, kFirst, 7471), 0);
  ASSERT_EQ(b.connect(id), 0);
  carry();
  EXPECT_EQ(b.event().event, ~0u);  // somebody may listen in a moment
  wait(300'000'000);
  carry();
  const auto event = b.event();
  EXPECT_EQ(event.event, kRejected);
  EXPECT_EQ(event.status, 8u);  // invalid service
}

TEST_F(CmTest, WhoListensAMomentLaterIsFound) {
  const std::uint32_t id = b.create(RDMA_PS_TCP, 20);
  ASSERT_EQ(b.resolve(id, kFirst, 7471), 0);
  ASSERT_EQ(b.connect(id), 0);
  carry();
  wait(100'000'000);
  const std::uint32_t listener = a.create(RDMA_PS_TCP, 10);
  a.bind(listener, 0, 7471);
  ASSERT_EQ(a.listen(listener), 0);
  EXPECT_EQ(a.event().event, kConnectRequest);
  wait(300'000'000);
  carry();
  EXPECT_EQ(b.event().event, ~0u);  // and nobody is refused
}

TEST_F(CmTest, ARefusalBringsItsReasonAndData) {
  const Joined j = request();
  EXPECT_EQ(a.reject(j.server, 2), 0);
  carry();
  const auto event = b.event();
  EXPECT_EQ(event.event, kRejected);
  EXPECT_EQ(event.status, 28u);  // consumer
  EXPECT_EQ(event.param.conn.private_data[1], 9);
  EXPECT_EQ(a.accept(j.server, 11), EINVAL);
}

TEST_F(CmTest, LostMessagesAreSaidAgain) {
  const std::uint32_t listener = a.create(RDMA_PS_TCP, 10);
  a.bind(listener, 0, 7471);
  a.listen(listener);
  const std::uint32_t client = b.create(RDMA_PS_TCP, 20);
  ASSERT_EQ(b.resolve(client, kFirst, 7471), 0);
  ASSERT_EQ(b.connect(client), 0);
  carry(1);  // REQ
  EXPECT_EQ(a.event().event, ~0u);
  wait(5'000'000'000);
  carry();
  const auto request = a.event();
  ASSERT_EQ(request.event, kConnectRequest);
  ASSERT_EQ(a.accept(request.id, 11), 0);
  carry(1);  // REP
  wait(5'000'000'000);
  carry();
  ASSERT_EQ(b.event().event, kConnectResponse);
  ASSERT_EQ(b.accept(client, 0), 0);
  carry(1);  // RTU
  EXPECT_EQ(a.event().event, ~0u);
  wait(5'000'000'000);  // REP again, and RTU for it
  carry();
  EXPECT_EQ(a.event().event, kEstablished);
  EXPECT_EQ(b.event().event, ~0u);  // nothing was told twice
}

TEST_F(CmTest, SilenceIsUnreachableInTheEnd) {
  const std::uint32_t id = b.create(RDMA_PS_TCP, 20);
  ASSERT_EQ(b.resolve(id, kFirst, 7471), 0);
  ASSERT_EQ(b.connect(id), 0);
  for (int i = 0; i < 16; ++i) {
    carry(1);
    EXPECT_EQ(b.event().event, ~0u);
    wait(5'000'000'000);
  }
  const auto event = b.event();
  EXPECT_EQ(event.event, kUnreachable);
  EXPECT_EQ(static_cast<int>(event.status), -ETIMEDOUT);
}

TEST_F(CmTest, AProgramThatEndsIsADisconnect) {
  const Joined j = join();
  a.cm.close(a.file);
  EXPECT_EQ(a.cm.ids(), 0u);
  carry();
  EXPECT_EQ(b.event().event, kDisconnected);
  EXPECT_EQ(b.disconnect(j.client), 0);
  carry();  // DREP for an id that is gone
}

TEST_F(CmTest, RequestsThatNobodySawEndWithTheirListener) {
  const Joined j = request();
  const std::uint32_t other = b.create(RDMA_PS_TCP, 21);
  ASSERT_EQ(b.resolve(other, kFirst, 7471), 0);
  ASSERT_EQ(b.connect(other), 0);
  carry();
  EXPECT_EQ(a.destroy(j.listener), 0);
  EXPECT_EQ(a.cm.ids(), 1u);  // the one that was seen
  carry();
  const auto event = b.event();
  EXPECT_EQ(event.event, kRejected);
  EXPECT_EQ(event.uid, 21u);
  EXPECT_EQ(a.event().event, ~0u);
}

TEST_F(CmTest, ABacklogIsALimit) {
  const std::uint32_t listener = a.create(RDMA_PS_TCP, 10);
  a.bind(listener, 0, 7471);
  ASSERT_EQ(a.listen(listener, 2), 0);
  for (std::uint64_t i = 0; i < 3; ++i) {
    const std::uint32_t id = b.create(RDMA_PS_TCP, 20 + i);
    ASSERT_EQ(b.resolve(id, kFirst, 7471), 0);
    ASSERT_EQ(b.connect(id), 0);
  }
  carry();
  EXPECT_EQ(a.event().event, kConnectRequest);
  EXPECT_EQ(a.event().event, kConnectRequest);
  EXPECT_EQ(a.event().event, ~0u);
  wait(5'000'000'000);  // the third asks again, and there is room
  carry();
  EXPECT_EQ(a.event().event, kConnectRequest);
}

TEST_F(CmTest, PortsBelongToOneListener) {
  const std::uint32_t first = a.create(RDMA_PS_TCP, 10);
  const std::uint32_t second = a.create(RDMA_PS_TCP, 11);
  EXPECT_EQ(a.bind(first, 0, 7471), 0);
  EXPECT_EQ(a.bind(second, 0, 7471), EADDRINUSE);
  EXPECT_EQ(a.bind(second, kFirst + 1, 7471), EADDRNOTAVAIL);  // another node's
  const std::uint32_t datagram = a.create(RDMA_PS_UDP, 12);    // another port space
  EXPECT_EQ(a.bind(datagram, 0, 7471), 0);
  EXPECT_EQ(a.destroy(first), 0);
  EXPECT_EQ(a.bind(second, 0, 7471), 0);
}

// Servers that listen in both families bind 0.0.0.0, and :: for IPv6 only, to one port (tgt).
TEST_F(CmTest, FamiliesShareAPortIfTheyAreKeptApart) {
  const auto bind_any_six = [&](std::uint32_t id) {
    rdma_ucm_bind_ip command{};
    command.id = id;
    command.addr.sin6_family = AF_INET6;
    command.addr.sin6_port = htons(3260);
    return a.run(RDMA_USER_CM_CMD_BIND_IP, command);
  };
  const std::uint32_t four = a.create(RDMA_PS_TCP, 10);
  const std::uint32_t six = a.create(RDMA_PS_TCP, 11);
  EXPECT_EQ(a.only_family(six), 0);
  EXPECT_EQ(bind_any_six(six), 0);
  EXPECT_EQ(a.listen(six), 0);
  EXPECT_EQ(a.only_family(six), EINVAL);  // too late
  EXPECT_EQ(a.bind(four, 0, 3260), 0);
  EXPECT_EQ(a.listen(four), 0);
  const std::uint32_t both = a.create(RDMA_PS_TCP, 12);
  EXPECT_EQ(bind_any_six(both), EADDRINUSE);

  const std::uint32_t client = b.create(RDMA_PS_TCP, 20);
  ASSERT_EQ(b.resolve(client, kFirst, 3260), 0);
  ASSERT_EQ(b.connect(client, 0x77), 0);
  carry();
  const auto request = a.event();
  EXPECT_EQ(request.event, kConnectRequest);
  EXPECT_EQ(request.uid, 10U) << "the listener for IPv4";
}

// Ports are held by name: whatever other ids there are, the right one is found and given back.
TEST_F(CmTest, ManyIdsHoldPorts) {
  std::vector<std::uint32_t> ids;
  for (std::uint16_t i = 0; i < 300; ++i) {
    ids.push_back(a.create(RDMA_PS_TCP, i));
    ASSERT_EQ(a.bind(ids.back(), 0, static_cast<std::uint16_t>(20'000 + i)), 0);
  }
  const std::uint32_t late = a.create(RDMA_PS_TCP, 999);
  for (std::uint16_t i = 0; i < 300; i = static_cast<std::uint16_t>(i + 7)) {
    const auto port = static_cast<std::uint16_t>(20'000 + i);
    EXPECT_EQ(a.bind(late, 0, port), EADDRINUSE) << port;
    EXPECT_EQ(a.destroy(ids[i]), 0);
    const std::uint32_t heir = a.create(RDMA_PS_TCP, 1000u + i);
    EXPECT_EQ(a.bind(heir, 0, port), 0) << port;
  }
}

TEST_F(CmTest, AServiceTellsItsQp) {
  const std::uint32_t listener = a.create(RDMA_PS_UDP, 10);
  a.bind(listener, 0, 7174);
  a.listen(listener);
  const std::uint32_t client = b.create(RDMA_PS_UDP, 20);
  ASSERT_EQ(b.resolve(client, kFirst, 7174), 0);
  ASSERT_EQ(b.connect(client, 0x33), 0);
  carry();
  const auto request = a.event();
  ASSERT_EQ(request.event, kConnectRequest);
  EXPECT_EQ(request.param.ud.private_data[0], 0x33);
  ASSERT_EQ(a.accept(request.id, 11), 0);
  carry(1);  // the answer is lost; the question comes again
  wait(5'000'000'000);
  carry();
  const auto event = b.event();
  EXPECT_EQ(event.event, kEstablished);
  EXPECT_EQ(event.param.ud.qp_num, 0x200u);
  EXPECT_EQ(event.param.ud.qkey, 0x01234567u);
  EXPECT_EQ(event.param.ud.ah_attr.dlid, 1);
}

TEST_F(CmTest, GroupsHaveOneNameEverywhere) {
  rdma_ucm_event_resp joined[2];
  for (Node* node : {&a, &b}) {
    const std::uint32_t id = node->create(RDMA_PS_UDP, 10);
    ASSERT_EQ(node->resolve(id, 0xef010101, 0), 0);
    std::uint32_t group = 0;
    ASSERT_EQ(node->join(id, 0xef010101, group), 0);
    joined[node->self] = node->event();
    EXPECT_EQ(joined[node->self].event, kMulticastJoin);
    EXPECT_EQ(joined[node->self].uid, 99u);
    std::uint32_t reported = 0;
    EXPECT_EQ(node->leave(group, &reported), 0);
    EXPECT_EQ(reported, 1u);
  }
  const auto& one = joined[0].param.ud.ah_attr;
  const auto& two = joined[1].param.ud.ah_attr;
  EXPECT_EQ(std::memcmp(one.grh.dgid, two.grh.dgid, 16), 0);
  EXPECT_EQ(one.grh.dgid[0], 0xff);
  EXPECT_EQ(one.dlid, two.dlid);
  EXPECT_GE(one.dlid, 0xc000);
}

// Datagrams of a group go by a device, which an id has when it has the address of one; and whoever
// has a peer speaks with that alone.
TEST_F(CmTest, OnlyAnIdThatCanSendToAGroupJoinsIt) {
  constexpr std::uint32_t kGroup = 0xef010101;
  std::uint32_t group = 0;
  const std::uint32_t datagrams = a.create(RDMA_PS_UDP, 10);
  EXPECT_EQ(a.join(datagrams, kGroup, group), EINVAL) << "no address";
  ASSERT_EQ(a.bind(datagrams, 0, 7000), 0);
  EXPECT_EQ(a.join(datagrams, kGroup, group), EINVAL) << "any address";
  ASSERT_EQ(a.resolve(datagrams, kGroup, 0), 0);
  EXPECT_EQ(a.join(datagrams, kGroup, group), 0);
  const std::uint32_t bound = a.create(RDMA_PS_UDP, 11);
  ASSERT_EQ(a.bind(bound, kFirst, 7001), 0);
  EXPECT_EQ(a.join(bound, kGroup, group), 0);
  EXPECT_EQ(a.listen(bound), 0);
  EXPECT_EQ(a.join(bound, kGroup, group), EINVAL) << "listens";
  const std::uint32_t connections = a.create(RDMA_PS_TCP, 12);
  ASSERT_EQ(a.bind(connections, kFirst, 7002), 0);
  EXPECT_EQ(a.join(connections, kGroup, group), EINVAL) << "of no datagrams";
  const Joined j = asked(RDMA_PS_UDP, 7174);
  EXPECT_EQ(b.join(j.client, kGroup, group), EINVAL) << "asks for a service";
  carry();
  EXPECT_EQ(a.event().event, kMulticastJoin);
  EXPECT_EQ(a.event().event, kMulticastJoin);
  const auto request = a.event();
  ASSERT_EQ(request.event, kConnectRequest);
  EXPECT_EQ(a.join(request.id, kGroup, group), EINVAL) << "is asked";
}

TEST_F(CmTest, AnIdMovesWithItsEvents) {
  const Joined j = join();
  EXPECT_EQ(b.disconnect(j.client), 0);
  carry();
  const hca::CmFileId old = a.file;
  a.file = a.cm.open(kProgram);
  std::uint32_t reported = 0;
  EXPECT_EQ(a.migrate(j.server, old, &reported), 0);
  EXPECT_EQ(reported, 1u);
  EXPECT_EQ(a.event().event, kDisconnected);
  a.file = old;
  EXPECT_EQ(a.event().event, ~0u);
  EXPECT_EQ(a.disconnect(j.server), ENOENT);
}

TEST_F(CmTest, AListenerMovesWithTheRequestsThatWait) {
  const Joined j = asked();
  carry();
  const hca::CmFileId old = a.file;
  a.file = a.cm.open(kProgram);
  ASSERT_EQ(a.migrate(j.listener, old), 0);
  const auto event = a.event();
  ASSERT_EQ(event.event, kConnectRequest);
  EXPECT_EQ(a.accept(event.id, 11), 0);
  carry();
  EXPECT_EQ(b.event().event, kConnectResponse);
}

TEST_F(CmTest, APeerThatEndsBeforeItsAnswerIsReadIsADisconnect) {
  const Joined j = request();
  ASSERT_EQ(a.accept(j.server, 11), 0);
  a.cm.close(a.file);
  carry();
  EXPECT_EQ(b.event().event, kConnectResponse);
  EXPECT_EQ(b.event().event, kDisconnected);
  EXPECT_NE(b.accept(j.client, 0), 0);
}

TEST_F(CmTest, AddressesOfTheOldAndTheNewKind) {
  const std::uint32_t id = a.create(RDMA_PS_IB, 10);
  rdma_ucm_bind command{};
  command.id = id;
  EXPECT_EQ(a.run(RDMA_USER_CM_CMD_BIND, command), EINVAL);  // so librdmacm takes IP addresses
  EXPECT_EQ(a.resolve(id, 0x0a000001, 1), EHOSTUNREACH);
}

// What is bound to 127.0.0.1 has the node's address: told to another node, that one must lead here.
TEST_F(CmTest, LoopbackIsTheNodeAsOthersKnowIt) {
  constexpr std::uint32_t kLoopback = 0x7f000001;
  const auto addresses = [&](std::uint32_t id) {
    rdma_ucm_query_route_resp route{};
    EXPECT_EQ(b.run(RDMA_USER_CM_CMD_QUERY_ROUTE, rdma_ucm_query{0, id, 0}, &route, sizeof route),
              0);
    sockaddr_in both[2];
    std::memcpy(&both[0], &route.src_addr, sizeof both[0]);
    std::memcpy(&both[1], &route.dst_addr, sizeof both[1]);
    return std::pair(ntohl(both[0].sin_addr.s_addr), ntohl(both[1].sin_addr.s_addr));
  };
  const std::uint32_t bound = b.create(RDMA_PS_TCP, 10);
  ASSERT_EQ(b.bind(bound, kLoopback, 7000), 0);
  EXPECT_EQ(addresses(bound).first, kFirst + 1);
  const std::uint32_t resolved = b.create(RDMA_PS_TCP, 11);
  ASSERT_EQ(b.resolve(resolved, kLoopback, 7000), 0);
  EXPECT_EQ(addresses(resolved), std::pair(kFirst + 1, kFirst + 1));
  const std::uint32_t any = b.create(RDMA_PS_TCP, 12);
  ASSERT_EQ(b.bind(any, 0, 7001), 0);
  EXPECT_EQ(addresses(any).first, 0U);
}

// As connect() has it: who names no address means this host.
TEST_F(CmTest, AnyAddressIsLoopback) {
  const std::uint32_t listener = b.create(RDMA_PS_TCP, 10);
  ASSERT_EQ(b.bind(listener, 0, 7000), 0);
  ASSERT_EQ(b.listen(listener), 0);
  const std::uint32_t four = b.create(RDMA_PS_TCP, 11);
  ASSERT_EQ(b.resolve(four, 0, 7000), 0);
  rdma_ucm_query_route_resp route{};
  ASSERT_EQ(b.run(RDMA_USER_CM_CMD_QUERY_ROUTE, rdma_ucm_query{0, four, 0}, &route, sizeof route),
            0);
  sockaddr_in to{};
  std::memcpy(&to, &route.dst_addr, sizeof to);
  EXPECT_EQ(ntohl(to.sin_addr.s_addr), kFirst + 1);
  ASSERT_EQ(b.connect(four), 0);
  carry();
  EXPECT_EQ(b.event().event, kConnectRequest);
  rdma_ucm_resolve_ip six{};
  six.id = b.create(RDMA_PS_TCP, 12);
  six.dst_addr.sin6_family = AF_INET6;
  six.dst_addr.sin6_port = htons(7000);
  ASSERT_EQ(b.run(RDMA_USER_CM_CMD_RESOLVE_IP, six), 0);
  EXPECT_EQ(b.event().event, kAddressResolved);
}

// A port may be shared as long as nobody listens at it; once bound, the wish cannot be taken back.
TEST_F(CmTest, ABoundIdMayShareItsPort) {
  const std::uint32_t first = a.create(RDMA_PS_TCP, 10);
  const std::uint32_t second = a.create(RDMA_PS_TCP, 11);
  ASSERT_EQ(a.set(second, RDMA_OPTION_ID_REUSEADDR, 1), 0);
  ASSERT_EQ(a.bind(first, 0, 7471), 0);
  EXPECT_EQ(a.bind(second, 0, 7471), EADDRINUSE);
  EXPECT_EQ(a.set(first, RDMA_OPTION_ID_REUSEADDR, 1), 0);
  EXPECT_EQ(a.bind(second, 0, 7471), 0);
  EXPECT_EQ(a.set(first, RDMA_OPTION_ID_REUSEADDR, 0), EINVAL);
  EXPECT_EQ(a.destroy(second), 0);
  ASSERT_EQ(a.listen(first), 0);
  EXPECT_EQ(a.set(first, RDMA_OPTION_ID_REUSEADDR, 1), EINVAL);
}

TEST_F(CmTest, ADisconnectThatNobodyAnswersSaysSo) {
  const Joined j = join();
  ASSERT_EQ(b.disconnect(j.client), 0);
  for (int i = 0; i < 5; ++i) {
    carry(network.flying.size());
    EXPECT_EQ(b.event().event, ~0u);
    wait(5'000'000'000);
  }
  const auto event = b.event();
  EXPECT_EQ(event.event, kDisconnected);
  EXPECT_EQ(static_cast<int>(event.status), -ETIMEDOUT);
}

// Whatever programs and nodes say: nothing but errnos, and all is given back in the end.
TEST_F(CmTest, RandomCommandsAndDatagrams) {
  const unsigned seed = 12345;
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  std::vector<std::uint8_t> bytes(512);
  std::vector<std::uint8_t> to(512);
  for (int i = 0; i < 60'000; ++i) {
    Node& node = random() % 2 == 0 ? a : b;
    for (auto& byte : bytes) byte = static_cast<std::uint8_t>(random() % 4 == 0 ? random() : 0);
    const rdma_ucm_cmd_hdr header{static_cast<std::uint32_t>(random() % 24),
                                  static_cast<std::uint16_t>(random() % 512),
                                  static_cast<std::uint16_t>(random() % 512)};
    std::memcpy(bytes.data(), &header, sizeof header);
    const auto id =
        static_cast<std::uint32_t>(random() % 64);  // often one that exists, at the places of ids
    for (const std::size_t at : {8u, 16u, 24u, 36u, 64u, 304u, 312u}) {
      if (random() % 2 == 0) std::memcpy(bytes.data() + at, &id, sizeof id);
    }
    (void)node.cm.command(node.file, std::span(bytes).first(random() % 512), to, node.now);
    if (random() % 8 == 0 && !network.flying.empty()) {
      Flying one = network.flying.front();
      network.flying.pop_front();
      if (random() % 4 == 0) one.mad[random() % 256] ^= static_cast<std::uint8_t>(random());
      node.cm.receive(one.from, one.mad, node.now);
    }
    if (random() % 64 == 0) wait(random() % 3'000'000'000);
  }
  network.flying.clear();
  a.cm.close(a.file);
  b.cm.close(b.file);
  EXPECT_EQ(a.cm.ids() + b.cm.ids(), 0u);
}

}  // namespace
