// Ports: who names none gets one of Linux's range, which ids with different peers share, so that a
// node's connections are not limited by what one peer could tell apart.
#include <gtest/gtest.h>
#include <rdma/rdma_user_cm.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <set>
#include <utility>

#include "tests/unit/hca/cm/pair.h"

namespace {

using namespace cm_test;

constexpr std::uint16_t kFirstPort = 32768;
constexpr std::uint16_t kLastPort = 60999;
constexpr std::uint32_t kPorts = kLastPort - kFirstPort + 1;

class CmPorts : public CmTest {
 protected:
  static std::uint16_t port_of(Node& node, std::uint32_t id) {
    rdma_ucm_query_route_resp route{};
    EXPECT_EQ(
        node.run(RDMA_USER_CM_CMD_QUERY_ROUTE, rdma_ucm_query{0, id, 0}, &route, sizeof route), 0);
    sockaddr_in from{};
    std::memcpy(&from, &route.src_addr, sizeof from);
    return ntohs(from.sin_port);
  }
  static int resolve(Node& node, std::uint32_t id, std::uint16_t port) {
    rdma_ucm_resolve_ip command{};
    command.id = id;
    Node::put(command.dst_addr, kFirst, port);
    return node.run(RDMA_USER_CM_CMD_RESOLVE_IP, command);
  }
  Node wide{network, 1, kLifeOfB, {.ids_of_program_max = 65536}};
};

TEST_F(CmPorts, IdsWithDifferentPeersShareThem) {
  std::set<std::uint16_t> alone;
  for (std::uint32_t i = 0; i < 1000; ++i) {
    const std::uint32_t id = wide.create(RDMA_PS_TCP, 1);
    ASSERT_EQ(wide.bind(id, 0, 0), 0);
    EXPECT_TRUE(alone.insert(port_of(wide, id)).second);
    if (i % 2 == 0) {
      ASSERT_EQ(wide.listen(id), 0);
    }
  }
  std::set<std::pair<std::uint16_t, std::uint16_t>> used;
  for (std::uint32_t i = 0; i < 40'000; ++i) {
    const std::uint32_t id = wide.create(RDMA_PS_TCP, 2);
    const auto to = static_cast<std::uint16_t>(7000 + i % 2);
    ASSERT_EQ(resolve(wide, id, to), 0) << i;
    const std::uint16_t port = port_of(wide, id);
    ASSERT_TRUE(port >= kFirstPort && port <= kLastPort) << port;
    EXPECT_TRUE(used.emplace(to, port).second) << "two with one peer";
    EXPECT_FALSE(alone.contains(port)) << "of one that may listen";
  }
}

// Of one peer's there are as many as ports, or hardly fewer; a port by name is nobody else's.
TEST_F(CmPorts, IdsWithOnePeerHaveOneEach) {
  int error = 0;
  std::uint32_t many = 0;
  std::uint32_t last = 0;
  for (; error == 0 && many <= kPorts; ++many) {
    last = wide.create(RDMA_PS_TCP, 2);
    error = resolve(wide, last, 7000);
  }
  EXPECT_EQ(error, EADDRNOTAVAIL);
  EXPECT_GT(many, kPorts * 9 / 10);
  EXPECT_EQ(wide.bind(last, kFirst + 1, 7000), 0) << "it has no port, and no peer";
  EXPECT_EQ(wide.listen(last), 0);
  EXPECT_EQ(resolve(wide, wide.create(RDMA_PS_TCP, 3), 7001), 0) << "another peer";
  EXPECT_EQ(resolve(wide, wide.create(RDMA_PS_UDP, 4), 7000), 0) << "another port space";
}

TEST_F(CmPorts, APortThatIsNamedIsNotShared) {
  const std::uint32_t first = b.create(RDMA_PS_TCP, 1);
  ASSERT_EQ(resolve(b, first, 7000), 0);
  const std::uint16_t port = port_of(b, first);
  const std::uint32_t second = b.create(RDMA_PS_TCP, 2);
  EXPECT_EQ(b.bind(second, 0, port), EADDRINUSE);
  ASSERT_EQ(b.destroy(first), 0);
  EXPECT_EQ(b.bind(second, 0, port), 0);
}

// Nobody is there: the id keeps its port, and may listen at it.
TEST_F(CmPorts, AnIdWhosePeerWasNotFoundSharesNone) {
  std::set<std::uint16_t> theirs;
  for (std::uint32_t i = 0; i < 20'000; ++i) {
    const std::uint32_t id = wide.create(RDMA_PS_TCP, 1);
    ASSERT_EQ(resolve(wide, id, 7000), 0);
    theirs.insert(port_of(wide, id));
  }
  while (wide.event().event == kAddressResolved) continue;
  for (std::uint32_t i = 0; i < 20; ++i) {
    const std::uint32_t id = wide.create(RDMA_PS_TCP, 2);
    EXPECT_EQ(wide.resolve(id, 0x0a000001, 7000), EHOSTUNREACH);
    EXPECT_FALSE(theirs.contains(port_of(wide, id)));
    EXPECT_EQ(wide.listen(id), 0);
  }
}

}  // namespace
