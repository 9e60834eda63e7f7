// Two nodes with as many connections as a test joins, on service levels that have a lane each: 0,
// 2, 3 and 4 are best effort on lanes 0 to 3. What leaves a node is counted as it is handed on.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "tests/unit/hca/host/pair.h"

namespace test {

inline hca::HostOptions a_lane_for_each_sl(hca::HostOptions options = {}) {
  options.congestion = "none";
  options.controls.power_control = false;
  for (std::size_t lane = 0; lane < 4; ++lane)
    options.lanes_of_sl[lane == 0 ? 0 : lane + 1] = static_cast<std::uint16_t>(1U << lane);
  return options;
}
constexpr std::uint8_t sl_of_lane(unsigned lane) {
  return static_cast<std::uint8_t>(lane == 0 ? 0 : lane + 1);
}

inline constexpr std::uint32_t kPayload = 612;  // of a full packet of 40 flits
inline constexpr std::uint32_t kFirstPsn = 0xfffff0;

inline std::uint32_t qp_of(const emu::TxDesc& desc) {
  return static_cast<std::uint32_t>(desc.cookie & emu::kMask24);
}

struct Connection {
  sim::Queue a;
  sim::Queue b;
};

class LaneNet {
 public:
  explicit LaneNet(std::uint32_t slots, const LinkOptions& link = {}, int nodes = 2)
      : cluster(with_slots(link, slots), a_lane_for_each_sl(), nodes) {
    for (int n = 0; n < nodes; ++n) {
      Side& me = n == 0 ? a : n == 1 ? b : c;
      me.app = std::make_unique<sim::App>(cluster.host(n));
      me.bytes.resize(1 << 20);
      me.keys = me.app->reg(me.bytes.data(), me.bytes.size(), kAll);
      me.cq = me.app->make_cq(1 << 13);
    }
    for (std::size_t i = 0; i < a.bytes.size(); ++i)
      a.bytes[i] = static_cast<std::uint8_t>(i * 2654435761u >> 13);
  }

  Connection join(std::uint8_t sl, hca::QpType type = hca::QpType::rc, emu::NodeId node = 1) {
    const hca::QpCapacity capacity{256, 16, 2, 2, 64};
    Side& peer = node == 1 ? b : c;
    Connection made{a.app->make_qp(type, a.cq, a.cq, capacity),
                    peer.app->make_qp(type, peer.cq, peer.cq, capacity)};
    connect(made, sl, node);
    return made;
  }
  void connect(const Connection& made, std::uint8_t sl, emu::NodeId node = 1) {
    sim::Path path;
    path.sl = sl;
    path.timeout = 0;
    path.dest = node;
    path.dest_qpn = made.b.number;
    path.send_psn = path.recv_psn = kFirstPsn;
    EXPECT_EQ(a.app->connect(made.a, path, cluster.now()), 0);
    path.dest = 0;
    path.dest_qpn = made.a.number;
    EXPECT_EQ((node == 1 ? b : c).app->connect(made.b, path, cluster.now()), 0);
  }
  // A connection that has more to send than lane 0, whose packets the arbiter holds back, has room.
  Connection hold_back() {
    Connection slow = join(sl_of_lane(0));
    cluster.hold_lanes(0, 1);
    write(slow, 200);
    cluster.run();
    return slow;
  }
  // Bytes [0, packets * kPayload) to the same place at the peer; a READ from there.
  void write(Connection& via, std::uint32_t packets,
             hca::WrOpcode opcode = hca::WrOpcode::rdma_write, emu::EmuNs launch_ns = 0,
             const Side* peer = nullptr) {
    const hca::Sge sge = a.sge(0, packets * kPayload);
    if (peer == nullptr) peer = &b;
    EXPECT_EQ(a.app->post(via.a, {.opcode = opcode,
                                  .sges = {&sge, 1},
                                  .remote_addr = peer->address(0),
                                  .rkey = peer->keys.rkey,
                                  .launch_ns = launch_ns}),
              0);
    a.app->ring(cluster.now());
  }
  void write_back(Connection& via, std::uint32_t packets) {
    const hca::Sge sge = b.sge(0, packets * kPayload);
    EXPECT_EQ(b.app->post(via.b, {.opcode = hca::WrOpcode::rdma_write,
                                  .sges = {&sge, 1},
                                  .remote_addr = a.address(0),
                                  .rkey = a.keys.rkey}),
              0);
    b.app->ring(cluster.now());
  }
  // QP numbers of what a has handed on, packet by packet, from `first` on.
  std::vector<std::uint32_t> handed_on(std::size_t first = 0) {
    std::vector<std::uint32_t> qps;
    for (std::size_t i = first; i < cluster.sent().size(); ++i)
      qps.push_back(qp_of(cluster.sent()[i]));
    return qps;
  }
  std::size_t handed_on_by(const sim::Queue& queue) {
    const auto all = handed_on();
    return static_cast<std::size_t>(std::ranges::count(all, queue.number));
  }
  void let_all_go() {
    for (int n = 0; n < 2; ++n) {
      cluster.hold_lanes(n, 0);
      for (unsigned lane = 0; lane < emu::kVlCount; ++lane) cluster.let_go(n, lane);
    }
    cluster.run();
  }

  Cluster cluster;
  Side a;
  Side b;
  Side c;  // of the third node, where there is one

 private:
  static LinkOptions with_slots(LinkOptions link, std::uint32_t slots) {
    link.slots = slots;
    return link;
  }
};

}  // namespace test
