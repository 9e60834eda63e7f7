// Two applications on two nodes with one QP each, joined; the usual scene of the tests.
#pragma once

#include <gtest/gtest.h>

#include <vector>

#include "tests/unit/hca/host/lossy_link.h"

namespace test {

inline constexpr std::uint32_t kAll = hca::kAccessLocalWrite | hca::kAccessRemoteWrite |
                                      hca::kAccessRemoteRead | hca::kAccessRemoteAtomic;

struct Side {
  sim::Completions cq;
  sim::Queue qp;
  std::vector<std::uint8_t> bytes;
  std::unique_ptr<sim::App> app;  // last: ends before its bytes do
  hca::MrKeys keys;
  std::vector<hca::Cqe> done;

  hca::Sge sge(std::size_t offset, std::uint32_t length) const {
    return {reinterpret_cast<std::uint64_t>(bytes.data()) + offset, length, keys.lkey};
  }
  std::uint64_t address(std::size_t offset) const {
    return reinterpret_cast<std::uint64_t>(bytes.data()) + offset;
  }
  // Takes all completions there are.
  std::vector<hca::Cqe> take() {
    std::vector<hca::Cqe> taken;
    hca::Cqe cqe;
    while (sim::App::poll(cq, cqe)) taken.push_back(cqe);
    return taken;
  }
};

inline constexpr std::size_t kSideBytes = 1 << 20;

// Bytes that tell their places, made once: there is a pair in nearly every test.
inline const std::vector<std::uint8_t>& pattern() {
  static const auto made = [] {
    std::vector<std::uint8_t> bytes(kSideBytes);
    for (std::size_t i = 0; i < bytes.size(); ++i)
      bytes[i] = static_cast<std::uint8_t>(i * 2654435761u >> 13);
    return bytes;
  }();
  return made;
}

struct PairOptions {
  LinkOptions link;
  hca::HostOptions host;
  sim::Path path;          // dest, dest_qpn are filled in
  std::uint8_t mtu_b = 0;  // of b's QP, where it is to be another than a's
  hca::QpCapacity capacity{64, 64, 4, 4, 256};
  bool mapped = true;
  std::uint32_t access = kAll;
  bool same_node = false;
  hca::QpType type = hca::QpType::rc;
};

class Pair {
 public:
  explicit Pair(const PairOptions& options = {})
      : cluster(options.link, options.host), second(options.same_node ? 0 : 1) {
    for (int n = 0; n < 2; ++n) {
      Side& me = n == 0 ? a : b;
      hca::Host& host = cluster.host(n == 0 ? 0 : second);
      me.app = std::make_unique<sim::App>(host);
      me.bytes.resize(kSideBytes);
      me.keys = me.app->reg(me.bytes.data(), me.bytes.size(), options.access, options.mapped);
      me.cq = me.app->make_cq(1024);
      me.qp = me.app->make_qp(options.type, me.cq, me.cq, options.capacity);
    }
    sim::Path path = options.path;
    path.dest = static_cast<emu::NodeId>(second);
    path.dest_qpn = b.qp.number;
    path.send_psn = 0xfffff0;  // every test crosses the end of the circle
    path.recv_psn = 7;
    EXPECT_EQ(a.app->connect(a.qp, path, cluster.now()), 0);
    path.dest = 0;
    path.dest_qpn = a.qp.number;
    std::swap(path.send_psn, path.recv_psn);
    if (options.mtu_b != 0) path.mtu = options.mtu_b;
    EXPECT_EQ(b.app->connect(b.qp, path, cluster.now()), 0);
    a.bytes = pattern();
  }

  int post(const sim::Send& send) {
    const int error = a.app->post(a.qp, send);
    a.app->ring(cluster.now());
    return error;
  }
  void expect_recv(std::uint64_t wr_id, hca::Sge sge) {
    EXPECT_EQ(b.app->post_recv(b.qp, wr_id, {&sge, 1}), 0);
  }
  // Runs to quiet and returns the completions of either side.
  std::pair<std::vector<hca::Cqe>, std::vector<hca::Cqe>> run(emu::Cycle until = emu::kNever) {
    cluster.run(until);
    return {a.take(), b.take()};
  }

  Cluster cluster;
  int second;
  Side a;
  Side b;
};

inline std::vector<hca::WcStatus> statuses(const std::vector<hca::Cqe>& cqes) {
  std::vector<hca::WcStatus> list;
  for (const hca::Cqe& cqe : cqes) list.push_back(cqe.status);
  return list;
}

}  // namespace test
