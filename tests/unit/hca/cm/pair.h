// Two communication managers and the programs on them, in one thread: commands as librdmacm writes
// them, datagrams carried by the test, which may lose some. In: calls of the tests of this room.
#pragma once

#include <gtest/gtest.h>
#include <rdma/ib_user_sa.h>
#include <rdma/rdma_user_cm.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <deque>
#include <map>
#include <span>
#include <vector>

#include "hca/cm/cm.h"
#include "hca/cm/mad.h"

namespace cm_test {

constexpr std::uint32_t kFirst = 0x7f010001;
constexpr std::uint32_t kLifeOfA = 0x10a0a0a0;
constexpr std::uint32_t kLifeOfB = 0x10b0b0b0;
constexpr std::uint32_t kProgram = 4711;
constexpr std::uint32_t kAddressResolved = 0;
constexpr std::uint32_t kAddressError = 1;
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
  Node(Network& net, emu::NodeId node, std::uint32_t life, hca::CmOptions options = {})
      : network(net),
        self(node),
        cm(with(options, node, life), {node, {kFirst, kFirst + 1}}, *this) {
    file = cm.open(kProgram);
  }
  static hca::CmOptions with(hca::CmOptions options, emu::NodeId node, std::uint32_t life) {
    options.seed = node + 1u;
    options.life = life;
    return options;
  }
  void send(emu::NodeId dest, const hca::Mad& mad) override {
    network.flying.push_back({self, dest, mad});
    ++network.sent;
  }
  void events_wait(hca::CmFileId of, bool some) override { readable[of] = some; }

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
  // `qp_type`: of RDMA_PS_IB; other port spaces have one each.
  std::uint32_t create(std::uint16_t ps, std::uint64_t uid, std::uint8_t qp_type = 2) {
    rdma_ucm_create_id command{
        .uid = uid, .response = 0, .ps = ps, .qp_type = qp_type, .reserved = {}};
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
  int set(std::uint32_t id, std::uint32_t option, std::uint8_t value,
          std::size_t bytes = sizeof(int)) {
    const std::array<std::uint8_t, sizeof(int)> number{value};
    rdma_ucm_set_option command{};
    command.id = id;
    command.level = RDMA_OPTION_ID;
    command.optname = option;
    command.optlen = static_cast<std::uint32_t>(bytes);
    return run(RDMA_USER_CM_CMD_SET_OPTION, command, nullptr, 0, std::span(number).first(bytes));
  }
  int set_path(std::uint32_t id, std::span<const ib_path_rec_data> paths) {
    rdma_ucm_set_option command{};
    command.id = id;
    command.level = RDMA_OPTION_IB;
    command.optname = RDMA_OPTION_IB_PATH;
    command.optlen = static_cast<std::uint32_t>(paths.size_bytes());
    return run(RDMA_USER_CM_CMD_SET_OPTION, command, nullptr, 0,
               {reinterpret_cast<const std::uint8_t*>(paths.data()), paths.size_bytes()});
  }
  int only_family(std::uint32_t id) { return set(id, RDMA_OPTION_ID_AFONLY, 1); }
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
    command.ece = ece;
    return run(RDMA_USER_CM_CMD_CONNECT, command);
  }
  int accept(std::uint32_t id, std::uint64_t uid, std::uint8_t private_bytes = 0) {
    rdma_ucm_accept command{};
    command.id = id;
    command.uid = uid;
    command.conn_param.valid = uid != 0 ? 1 : 0;
    command.conn_param.qp_num = 0x200u + self;
    command.conn_param.responder_resources = 2;
    command.conn_param.initiator_depth = 2;
    command.conn_param.private_data_len = private_bytes;
    command.ece = ece;
    return run(RDMA_USER_CM_CMD_ACCEPT, command);
  }
  int reject(std::uint32_t id, std::uint8_t private_bytes) {
    rdma_ucm_reject command{};
    command.id = id;
    command.private_data_len = private_bytes;
    command.private_data[1] = 9;
    return run(RDMA_USER_CM_CMD_REJECT, command);
  }
  // From the file `old` to this one.
  int migrate(std::uint32_t id, hca::CmFileId old, std::uint32_t* reported = nullptr) {
    const auto* bytes = reinterpret_cast<const std::uint8_t*>(&old);
    rdma_ucm_migrate_resp reply{};
    const int error = run(RDMA_USER_CM_CMD_MIGRATE_ID, rdma_ucm_migrate_id{0, id, 0}, &reply,
                          sizeof reply, {bytes, sizeof old});
    if (reported != nullptr) *reported = reply.events_reported;
    return error;
  }
  int join(std::uint32_t id, std::uint32_t group, std::uint32_t& joined) {
    rdma_ucm_join_ip_mcast command{};
    command.id = id;
    command.uid = 99;
    put(command.addr, group, 0);
    rdma_ucm_create_id_resp reply{};
    const int error = run(RDMA_USER_CM_CMD_JOIN_IP_MCAST, command, &reply, sizeof reply);
    joined = reply.id;
    return error;
  }
  int leave(std::uint32_t joined, std::uint32_t* reported = nullptr) {
    rdma_ucm_destroy_id command{.response = 0, .id = joined, .reserved = 0};
    rdma_ucm_destroy_id_resp reply{};
    const int error = run(RDMA_USER_CM_CMD_LEAVE_MCAST, command, &reply, sizeof reply);
    if (reported != nullptr) *reported = reply.events_reported;
    return error;
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
  std::map<hca::CmFileId, bool> readable;
  emu::EmuNs now = 1000;
  rdma_ucm_ece ece{};  // of what connects and accepts
};

class CmTest : public testing::Test {
 protected:
  Network network;
  Node a{network, 0, kLifeOfA};
  Node b{network, 1, kLifeOfB};
  std::array<Node*, 2> nodes{&a, &b};  // who is there now: a node may start anew

  // Carries what flies until nothing does. `lose` of the next messages vanish.
  void carry(std::size_t lose = 0) {
    while (!network.flying.empty()) {
      const Flying one = network.flying.front();
      network.flying.pop_front();
      if (lose > 0) {
        --lose;
        continue;
      }
      nodes[one.to]->cm.receive(one.from, one.mad, nodes[one.to]->now);
    }
  }
  void wait(emu::EmuNs ns) {
    for (Node* node : nodes) {
      node->now += ns;
      node->cm.advance(node->now);
    }
  }
  // Of a connection: a's listener, a's id, b's id.
  struct Joined {
    std::uint32_t listener, server, client;
  };
  // a listens, b has asked: the request is on its way.
  Joined asked(std::uint16_t port_space = RDMA_PS_TCP, std::uint16_t port = 7471,
               std::uint8_t private_byte = 0) {
    Joined j{};
    j.listener = a.create(port_space, 10);
    EXPECT_EQ(a.bind(j.listener, 0, port), 0);
    EXPECT_EQ(a.listen(j.listener), 0);
    j.client = b.create(port_space, 20);
    EXPECT_EQ(b.resolve(j.client, kFirst, port), 0);
    EXPECT_EQ(b.connect(j.client, private_byte), 0);
    return j;
  }
  // The same at 7471, and a has seen the request.
  Joined request() {
    Joined j = asked(RDMA_PS_TCP, 7471, 0x77);
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

}  // namespace cm_test
