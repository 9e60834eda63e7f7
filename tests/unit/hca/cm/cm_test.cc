// Two communication managers and the programs on them, in one thread: commands as librdmacm writes
// them, datagrams carried by the test, which may lose some.
#include "hca/cm/cm.h"

#include <gtest/gtest.h>
#include <rdma/rdma_user_cm.h>

#include <cerrno>
#include <cstring>
#include <deque>
#include <memory>
#include <random>
#include <vector>

#include "hca/cm/mad.h"

namespace {

constexpr std::uint32_t kFirst = 0x7f010001;
constexpr std::uint32_t kConnectRequest = 4;
constexpr std::uint32_t kConnectResponse = 5;
constexpr std::uint32_t kUnreachable = 7;
constexpr std::uint32_t kRejected = 8;
constexpr std::uint32_t kEstablished = 9;
constexpr std::uint32_t kDisconnected = 10;
constexpr std::uint32_t kMulticastJoin = 12;
constexpr std::uint32_t kTimewaitExit = 15;

struct Flying {
  emu::NodeId from;
  emu::NodeId to;
  hca::Mad mad;
};

struct Network {
  std::deque<Flying> flying;
  std::size_t sent = 0;
};

// A node and one program with one rdma_cm file.
struct Node : hca::CmOut {
  Node(Network& net, emu::NodeId node)
      : network(net), self(node), cm({.seed = node + 1u}, {node, {kFirst, kFirst + 1}}, *this) {
    file = cm.open();
  }
  void send(emu::NodeId dest, const hca::Mad& mad) override {
    network.flying.push_back({self, dest, mad});
    ++network.sent;
  }
  void event_waits(hca::CmFileId) override { ++tokens; }

  // A command as write() would bring it. Returns the errno; the answer goes to `reply`.
  template <class Command>
  int run(std::uint32_t number, const Command& command, void* reply = nullptr,
          std::size_t reply_bytes = 0, std::span<const std::uint8_t> more = {}) {
    std::vector<std::uint8_t> bytes(sizeof(rdma_ucm_cmd_hdr) + sizeof command);
    const rdma_ucm_cmd_hdr header{number, sizeof command, static_cast<std::uint16_t>(reply_bytes)};
    std::memcpy(bytes.data(), &header, sizeof header);
    std::memcpy(bytes.data() + sizeof header, &command, sizeof command);
    bytes.insert(bytes.end(), more.begin(), more.end());
    std::vector<std::uint8_t> to(reply_bytes);
    const auto answer = cm.command(file, bytes, to, now);
    if (answer.error == 0 && reply != nullptr) std::memcpy(reply, to.data(), answer.bytes);
    return answer.error;
  }
  std::uint32_t create(std::uint16_t ps, std::uint64_t uid) {
    rdma_ucm_create_id command{.uid = uid, .response = 0, .ps = ps, .qp_type = 2, .reserved = {}};
    rdma_ucm_create_id_resp reply{};
    EXPECT_EQ(run(RDMA_USER_CM_CMD_CREATE_ID, command, &reply, sizeof reply), 0);
    return reply.id;
  }
  int destroy(std::uint32_t id, std::uint32_t* reported = nullptr) {
    rdma_ucm_destroy_id command{.response = 0, .id = id, .reserved = 0};
    rdma_ucm_destroy_id_resp reply{};
    const int error = run(RDMA_USER_CM_CMD_DESTROY_ID, command, &reply, sizeof reply);
    if (reported != nullptr) *reported = reply.events_reported;
    return error;
  }
  int bind(std::uint32_t id, std::uint32_t v4, std::uint16_t port) {
    rdma_ucm_bind_ip command{};
    command.id = id;
    put(command.addr, v4, port);
    return run(RDMA_USER_CM_CMD_BIND_IP, command);
  }
  int listen(std::uint32_t id, std::uint32_t backlog = 8) {
    return run(RDMA_USER_CM_CMD_LISTEN, rdma_ucm_listen{id, backlog});
  }
  int resolve(std::uint32_t id, std::uint32_t v4, std::uint16_t port) {
    rdma_ucm_resolve_ip command{};
    command.id = id;
    put(command.dst_addr, v4, port);
    if (const int error = run(RDMA_USER_CM_CMD_RESOLVE_IP, command)) return error;
    if (event().event != 0) return EHOSTUNREACH;
    if (const int error = run(RDMA_USER_CM_CMD_RESOLVE_ROUTE, rdma_ucm_resolve_route{id, 0})) {
      return error;
    }
    return event().event == 2 ? 0 : EIO;
  }
  int connect(std::uint32_t id, std::uint8_t private_byte = 0, std::uint8_t private_bytes = 1) {
    rdma_ucm_connect command{};
    command.id = id;
    command.conn_param.qp_num = 0x100u + self;
    command.conn_param.responder_resources = 3;
    command.conn_param.initiator_depth = 5;
    command.conn_param.retry_count = 6;
    command.conn_param.rnr_retry_count = 7;
    command.conn_param.private_data[0] = private_byte;
    command.conn_param.private_data_len = private_bytes;
    return run(RDMA_USER_CM_CMD_CONNECT, command);
  }
  int accept(std::uint32_t id, std::uint64_t uid) {
    rdma_ucm_accept command{};
    command.id = id;
    command.uid = uid;
    command.conn_param.valid = uid != 0 ? 1 : 0;
    command.conn_param.qp_num = 0x200u + self;
    command.conn_param.responder_resources = 2;
    command.conn_param.initiator_depth = 2;
    return run(RDMA_USER_CM_CMD_ACCEPT, command);
  }
  int disconnect(std::uint32_t id) {
    return run(RDMA_USER_CM_CMD_DISCONNECT, rdma_ucm_disconnect{id});
  }
  ib_uverbs_qp_attr attributes(std::uint32_t id, std::uint32_t state) {
    ib_uverbs_qp_attr reply{};
    EXPECT_EQ(run(RDMA_USER_CM_CMD_INIT_QP_ATTR, rdma_ucm_init_qp_attr{0, id, state}, &reply,
                  sizeof reply),
              0);
    return reply;
  }
  // The next event; `event` is ~0 if there is none.
  rdma_ucm_event_resp event() {
    rdma_ucm_event_resp reply{};
    if (run(RDMA_USER_CM_CMD_GET_EVENT, rdma_ucm_get_event{}, &reply, sizeof reply) != 0) {
      reply.event = ~0u;
    }
    return reply;
  }
  static void put(sockaddr_in6& to, std::uint32_t v4, std::uint16_t port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(v4);
    std::memcpy(&to, &address, sizeof address);
  }

  Network& network;
  emu::NodeId self;
  hca::Cm cm;
  hca::CmFileId file = 0;
  std::size_t tokens = 0;
  emu::EmuNs now = 1000;
};

class CmTest : public testing::Test {
 protected:
  Network network;
  Node a{network, 0};
  Node b{network, 1};

  // Carries what flies until nothing does. `lose` of the next messages vanish.
  void carry(std::size_t lose = 0) {
    while (!network.flying.empty()) {
      const Flying one = network.flying.front();
      network.flying.pop_front();
      if (lose > 0) {
        --lose;
        continue;
      }
      (one.to == 0 ? a : b).cm.receive(one.from, one.mad, a.now);
    }
  }
  void wait(emu::EmuNs ns) {
    a.now = b.now = a.now + ns;
    a.cm.advance(a.now);
    b.cm.advance(b.now);
  }
  // a listens at 7471; b has connected, a has seen the request: (listener, a's id, b's id).
  struct Joined {
    std::uint32_t listener, server, client;
  };
  Joined request() {
    Joined j{};
    j.listener = a.create(RDMA_PS_TCP, 10);
    EXPECT_EQ(a.bind(j.listener, 0, 7471), 0);
    EXPECT_EQ(a.listen(j.listener), 0);
    j.client = b.create(RDMA_PS_TCP, 20);
    EXPECT_EQ(b.resolve(j.client, kFirst, 7471), 0);
    EXPECT_EQ(b.connect(j.client, 0x77), 0);
    carry();
    const auto event = a.event();
    EXPECT_EQ(event.event, kConnectRequest);
    EXPECT_EQ(event.uid, 10u);
    EXPECT_EQ(event.param.conn.private_data[0], 0x77);
    EXPECT_EQ(event.param.conn.private_data_len, 56);
    EXPECT_EQ(event.param.conn.qp_num, 0x101u);
    EXPECT_EQ(event.param.conn.responder_resources, 5);  // what the other would start
    EXPECT_EQ(event.param.conn.initiator_depth, 3);
    j.server = event.id;
    return j;
  }
  Joined join() {
    const Joined j = request();
    EXPECT_EQ(a.accept(j.server, 11), 0);
    carry();
    const auto answer = b.event();
    EXPECT_EQ(answer.event, kConnectResponse);
    EXPECT_EQ(answer.param.conn.qp_num, 0x200u);
    EXPECT_EQ(b.accept(j.client, 0), 0);
    carry();
    EXPECT_EQ(a.event().event, kEstablished);
    return j;
  }
};

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
  rdma_ucm_reject command{};
  command.id = j.server;
  command.private_data_len = 2;
  command.private_data[1] = 9;
  EXPECT_EQ(a.run(RDMA_USER_CM_CMD_REJECT, command), 0);
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
    rdma_ucm_join_ip_mcast command{};
    command.id = id;
    command.uid = 99;
    Node::put(command.addr, 0xef010101, 0);
    rdma_ucm_create_id_resp reply{};
    ASSERT_EQ(node->run(RDMA_USER_CM_CMD_JOIN_IP_MCAST, command, &reply, sizeof reply), 0);
    joined[node->self] = node->event();
    EXPECT_EQ(joined[node->self].event, kMulticastJoin);
    EXPECT_EQ(joined[node->self].uid, 99u);
    rdma_ucm_destroy_id leave{.response = 0, .id = reply.id, .reserved = 0};
    rdma_ucm_destroy_id_resp left{};
    EXPECT_EQ(node->run(RDMA_USER_CM_CMD_LEAVE_MCAST, leave, &left, sizeof left), 0);
    EXPECT_EQ(left.events_reported, 1u);
  }
  const auto& one = joined[0].param.ud.ah_attr;
  const auto& two = joined[1].param.ud.ah_attr;
  EXPECT_EQ(std::memcmp(one.grh.dgid, two.grh.dgid, 16), 0);
  EXPECT_EQ(one.grh.dgid[0], 0xff);
  EXPECT_EQ(one.dlid, two.dlid);
  EXPECT_GE(one.dlid, 0xc000);
}

TEST_F(CmTest, AnIdMovesWithItsEvents) {
  const Joined j = join();
  EXPECT_EQ(b.disconnect(j.client), 0);
  carry();
  const hca::CmFileId old = a.file;
  a.file = a.cm.open();
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(&old);
  rdma_ucm_migrate_resp reply{};
  EXPECT_EQ(a.run(RDMA_USER_CM_CMD_MIGRATE_ID, rdma_ucm_migrate_id{0, j.server, 0}, &reply,
                  sizeof reply, {bytes, sizeof old}),
            0);
  EXPECT_EQ(reply.events_reported, 1u);
  EXPECT_EQ(a.event().event, kDisconnected);
  a.file = old;
  EXPECT_EQ(a.event().event, ~0u);
  EXPECT_EQ(a.disconnect(j.server), ENOENT);
}

TEST_F(CmTest, AListenerMovesWithTheRequestsThatWait) {
  const std::uint32_t listener = a.create(RDMA_PS_TCP, 10);
  ASSERT_EQ(a.bind(listener, 0, 7471), 0);
  ASSERT_EQ(a.listen(listener), 0);
  const std::uint32_t client = b.create(RDMA_PS_TCP, 20);
  ASSERT_EQ(b.resolve(client, kFirst, 7471), 0);
  ASSERT_EQ(b.connect(client), 0);
  carry();
  const hca::CmFileId old = a.file;
  a.file = a.cm.open();
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(&old);
  rdma_ucm_migrate_resp reply{};
  ASSERT_EQ(a.run(RDMA_USER_CM_CMD_MIGRATE_ID, rdma_ucm_migrate_id{0, listener, 0}, &reply,
                  sizeof reply, {bytes, sizeof old}),
            0);
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
