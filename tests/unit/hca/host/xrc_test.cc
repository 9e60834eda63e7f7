// XRC: one connection serves the SRQs of several programs; each message says whose it is.
#include <gtest/gtest.h>

#include <array>
#include <cerrno>
#include <memory>

#include "emu/packet/build.h"
#include "tests/unit/hca/host/pair.h"

namespace {

using hca::WcStatus;
using hca::WrOpcode;
using test::Pair;

constexpr hca::XrcFile kFile{1, 2};
constexpr std::size_t kBytes = 1 << 18;

// A program on the second node with an SRQ of the shared domain.
struct Receiver {
  Receiver(hca::Host& on, std::uint8_t mark) : host(on), bytes(kBytes, mark), app(on) {
    keys = app.reg(bytes.data(), bytes.size(), test::kAll);
    cq = app.make_cq(64);
    xrcd = host.open_xrcd(app.client(), &kFile, true, false).value();
    srq = app.make_xrc_srq(xrcd, cq, 16);
  }
  void post(std::uint64_t wr_id, std::size_t offset, std::uint32_t length) {
    const hca::Sge piece{reinterpret_cast<std::uint64_t>(&bytes[offset]), length, keys.lkey};
    ASSERT_EQ(sim::App::post_shared(srq, wr_id, {&piece, 1}), 0);
  }
  std::uint64_t address(std::size_t offset) const {
    return reinterpret_cast<std::uint64_t>(&bytes[offset]);
  }
  std::vector<hca::Cqe> take() {
    std::vector<hca::Cqe> taken;
    hca::Cqe cqe;
    while (sim::App::poll(cq, cqe)) taken.push_back(cqe);
    return taken;
  }
  hca::Host& host;
  std::vector<std::uint8_t> bytes;
  sim::App app;
  hca::MrKeys keys;
  sim::Completions cq;
  std::uint32_t xrcd = 0;
  sim::Shared srq;
};

// The pair's first side sends; two programs on the second node share what receives.
struct Scene {
  explicit Scene(const test::PairOptions& options = {})
      : pair(options),
        host(pair.cluster.host(1)),
        first(std::make_unique<Receiver>(host, 1)),
        second(std::make_unique<Receiver>(host, 2)),
        from(pair.a.app->make_qp(hca::QpType::xrc_send, pair.a.cq, pair.a.cq, {32, 0, 2, 1, 64})),
        to(first->app.make_xrc_recv(first->xrcd)) {
    opened = host.open_qp(second->app.client(), to.number, second->xrcd).value();
    sim::Path path = options.path;
    path.dest = 1;
    path.dest_qpn = to.number;
    path.send_psn = 0xfffff0;
    EXPECT_EQ(pair.a.app->connect(from, path, pair.cluster.now()), 0);
    path.dest = 0;
    path.dest_qpn = from.number;
    std::swap(path.send_psn, path.recv_psn);
    EXPECT_EQ(first->app.connect(to, path, pair.cluster.now()), 0);
  }
  void send(const sim::Shared& srq, std::uint64_t wr_id, std::size_t offset, std::uint32_t length) {
    const hca::Sge piece = pair.a.sge(offset, length);
    post({.wr_id = wr_id, .sges = {&piece, 1}, .xrc_srqn = srq.number});
  }
  void post(const sim::Send& send) {
    ASSERT_EQ(pair.a.app->post(from, send), 0);
    pair.a.app->ring(pair.cluster.now());
  }
  std::vector<hca::Cqe> run() { return pair.run().first; }

  Pair pair;
  hca::Host& host;
  std::unique_ptr<Receiver> first, second;
  sim::Queue from, to;
  std::uint32_t opened = 0;  // the second's handle
};

bool same(const Scene& scene, std::size_t from, const Receiver& to, std::size_t at,
          std::size_t length) {
  return std::equal(&scene.pair.a.bytes[from], &scene.pair.a.bytes[from] + length, &to.bytes[at]);
}

// Packets are lost, repeated and overtake one another; every message ends in its SRQ, in order.
TEST(Xrc, EachMessageGoesToItsSrq) {
  test::PairOptions options;
  options.link = {.seed = 11, .loss = 0.05, .repeat = 0.05, .delay_min = 20, .delay_max = 300};
  Scene scene(options);
  constexpr std::uint32_t kLength = 9000;
  for (std::uint64_t id = 0; id < 6; ++id) {
    scene.first->post(id, id * 10'000, kLength);
    scene.second->post(id, id * 10'000, kLength);
  }
  for (std::uint64_t id = 0; id < 12; ++id) {
    scene.send((id % 2 == 0 ? scene.first : scene.second)->srq, id, id * 10'000, kLength);
  }
  EXPECT_EQ(test::statuses(scene.run()), std::vector(12, WcStatus::success));
  for (std::uint64_t id = 0; id < 12; ++id) {
    EXPECT_TRUE(same(scene, id * 10'000, id % 2 == 0 ? *scene.first : *scene.second,
                     id / 2 * 10'000, kLength));
  }
  for (auto& receiver : {&scene.first, &scene.second}) {
    const auto done = (*receiver)->take();
    ASSERT_EQ(done.size(), 6u);
    for (std::uint64_t id = 0; id < 6; ++id) {
      EXPECT_EQ(done[id].status, WcStatus::success);
      EXPECT_EQ(done[id].wr_id, id);
      EXPECT_EQ(done[id].byte_len, kLength);
      EXPECT_EQ(done[id].qp_num, scene.to.number);
    }
  }
}

// Keys are those of the domain of protection that the named SRQ is in.
TEST(Xrc, MemoryIsTheNamedSrqs) {
  Scene scene;
  const hca::Sge piece = scene.pair.a.sge(0, 5000);
  const auto access = [&](WrOpcode opcode, const Receiver& owner, const sim::Shared& named) {
    scene.post({.opcode = opcode,
                .sges = {&piece, 1},
                .remote_addr = owner.address(0),
                .rkey = owner.keys.rkey,
                .xrc_srqn = named.number});
    return test::statuses(scene.run());
  };
  EXPECT_EQ(access(WrOpcode::rdma_write, *scene.second, scene.second->srq),
            std::vector{WcStatus::success});
  EXPECT_TRUE(same(scene, 0, *scene.second, 0, 5000));
  EXPECT_EQ(access(WrOpcode::rdma_read, *scene.first, scene.first->srq),
            std::vector{WcStatus::success});
  EXPECT_EQ(scene.pair.a.bytes[4999], 1);
  const hca::Sge word = scene.pair.a.sge(8000, 8);
  const hca::WqeExtension operands{.compare_add = 5};
  (void)operands;
  scene.post({.opcode = WrOpcode::atomic_fadd,
              .sges = {&word, 1},
              .remote_addr = scene.first->address(0),
              .rkey = scene.first->keys.rkey,
              .compare_add = 5,
              .xrc_srqn = scene.first->srq.number});
  EXPECT_EQ(test::statuses(scene.run()), std::vector{WcStatus::success});
  EXPECT_EQ(scene.first->bytes[0], 6);
  EXPECT_EQ(access(WrOpcode::rdma_write, *scene.second, scene.first->srq),
            std::vector{WcStatus::rem_access_err});
}

// A READ's answer is still read in its own domain of protection when the next message names
// another.
TEST(Xrc, ReadsAndSendsToDifferentSrqs) {
  Scene scene;
  for (std::uint64_t id = 0; id < 4; ++id) scene.second->post(id, id * 1000, 1000);
  const hca::Sge piece = scene.pair.a.sge(100'000, 50'000);
  for (std::uint64_t id = 0; id < 4; ++id) {
    scene.post({.opcode = WrOpcode::rdma_read,
                .sges = {&piece, 1},
                .remote_addr = scene.first->address(0),
                .rkey = scene.first->keys.rkey,
                .xrc_srqn = scene.first->srq.number});
    scene.send(scene.second->srq, id, 0, 1000);
  }
  EXPECT_EQ(test::statuses(scene.run()), std::vector(8, WcStatus::success));
  EXPECT_EQ(scene.second->take().size(), 4u);
  EXPECT_EQ(scene.pair.a.bytes[149'999], 1);
}

TEST(Xrc, AnUnknownSrqIsAnInvalidRequest) {
  for (const bool plain : {false, true}) {
    Scene scene;
    sim::Shared other = scene.first->srq;
    other.number = plain ? scene.first->app.make_srq(4, 1).number : 77;
    scene.first->post(1, 0, 100);
    scene.send(other, 1, 0, 100);
    EXPECT_EQ(test::statuses(scene.run()), std::vector{WcStatus::rem_inv_req_err});
    EXPECT_TRUE(scene.first->take().empty());
    EXPECT_TRUE(scene.pair.cluster.told(1).heard(hca::AsyncEvent::qp_req_err));
  }
}

// The program that made the QP ends; who has it open goes on.
TEST(Xrc, TheQpOutlivesItsMaker) {
  Scene scene;
  scene.first->post(1, 0, 100);
  scene.second->post(2, 0, 100);
  scene.send(scene.first->srq, 1, 0, 100);
  EXPECT_EQ(test::statuses(scene.run()), std::vector{WcStatus::success});
  const hca::ClientId maker = scene.first->app.client();
  const sim::Shared gone = scene.first->srq;
  // The ring of the QP is its maker's in this test; hcad keeps it as long as somebody has it open.
  scene.host.close_client(maker);
  scene.send(scene.second->srq, 2, 0, 100);
  EXPECT_EQ(test::statuses(scene.run()), std::vector{WcStatus::success});
  EXPECT_EQ(scene.second->take().size(), 1u);
  scene.send(gone, 3, 0, 100);
  EXPECT_EQ(test::statuses(scene.run()), std::vector{WcStatus::rem_inv_req_err});
  const hca::ClientId client = scene.second->app.client();
  EXPECT_EQ(scene.host.destroy_qp(client, scene.to.number), ENOENT);  // its maker's handle
  EXPECT_EQ(scene.host.destroy_qp(client, scene.opened), 0);
  EXPECT_EQ(scene.host.destroy_qp(client, scene.opened), ENOENT);
}

// An SRQ ends in the middle of a message: the rest of it is refused, nothing is written.
TEST(Xrc, AnSrqEndsInTheMiddleOfAMessage) {
  Scene scene;
  scene.first->post(1, 0, 100'000);
  scene.send(scene.first->srq, 1, 0, 100'000);
  scene.pair.cluster.run(scene.pair.cluster.now() + 60);
  ASSERT_EQ(scene.host.destroy_srq(scene.first->app.client(), scene.first->srq.number), 0);
  ASSERT_EQ(scene.host.destroy_cq(scene.first->app.client(), scene.first->cq.number), 0);
  EXPECT_EQ(test::statuses(scene.run()), std::vector{WcStatus::rem_inv_req_err});
}

// The extended header stands in every packet; a full one still has a worm's length.
TEST(Xrc, FullPacketsHaveAWormsLength) {
  EXPECT_EQ(emu::rc_payload_bytes_max(40, 128, 2048, emu::kXrcEthBytes), 608u);
  Scene scene;
  scene.first->post(1, 0, 100'000);
  scene.send(scene.first->srq, 1, 0, 60'800);
  EXPECT_EQ(test::statuses(scene.run()), std::vector{WcStatus::success});
  std::size_t full = 0;
  for (const emu::TxDesc& desc : scene.pair.cluster.sent()) {
    EXPECT_LE(desc.flits, 40);
    full += desc.flits == 40 ? 1 : 0;
  }
  EXPECT_EQ(full, 100u);
}

TEST(Xrc, Domains) {
  Scene scene;
  hca::Host& host = scene.host;
  const hca::ClientId mine = scene.first->app.client();
  const hca::ClientId other = scene.second->app.client();
  constexpr hca::XrcFile kOther{1, 3};
  EXPECT_EQ(host.open_xrcd(mine, &kOther, false, false).error(), EAGAIN);
  EXPECT_EQ(host.open_xrcd(mine, &kFile, true, true).error(), EINVAL);
  const std::uint32_t own = host.open_xrcd(mine, nullptr, true, false).value();
  EXPECT_EQ(host.close_xrcd(other, own), ENOENT);
  EXPECT_EQ(host.open_qp(mine, scene.to.number, own).error(), EINVAL);    // of another domain
  EXPECT_EQ(host.open_qp(mine, scene.from.number, own).error(), EINVAL);  // no such QP here
  EXPECT_EQ(host.open_qp(other, scene.to.number, own).error(), ENOENT);   // not its handle
  EXPECT_EQ(host.close_xrcd(mine, own), 0);
  EXPECT_EQ(host.close_xrcd(mine, scene.first->xrcd), EBUSY);
  EXPECT_EQ(host.destroy_cq(mine, scene.first->cq.number), EBUSY);
  EXPECT_EQ(host.destroy_srq(mine, scene.first->srq.number), 0);
  EXPECT_EQ(host.destroy_qp(mine, scene.to.number), 0);
  EXPECT_EQ(host.destroy_qp(mine, scene.to.number), ENOENT);
  EXPECT_EQ(host.close_xrcd(mine, scene.first->xrcd), 0);
  EXPECT_EQ(host.open_xrcd(mine, &kFile, false, false).value(), scene.first->xrcd);
}

// What a QP of each kind may be made with.
TEST(Xrc, Objects) {
  Scene scene;
  std::vector<std::uint8_t> region(1 << 16);
  const hca::ClientId client = scene.first->app.client();
  hca::QpSpec spec;
  spec.type = hca::QpType::xrc_recv;
  spec.xrcd = 99;
  EXPECT_EQ(scene.host.create_qp(client, spec, region).error(), ENOENT);
  spec.xrcd = scene.first->xrcd;
  spec.capacity = {1, 0, 1, 1, 0};
  EXPECT_EQ(scene.host.create_qp(client, spec, region).error(), EINVAL);
  spec = {};
  spec.type = hca::QpType::xrc_send;
  spec.pd = scene.first->app.pd();
  spec.send_cq = scene.first->cq.number;
  spec.capacity = {1, 1, 1, 1, 0};
  EXPECT_EQ(scene.host.create_qp(client, spec, region).error(), EINVAL);
  spec.type = hca::QpType::rc;
  spec.recv_cq = spec.send_cq;
  spec.capacity = {1, 0, 1, 1, 0};
  spec.srq = scene.first->srq.number;  // for XRC alone
  EXPECT_EQ(scene.host.create_qp(client, spec, region).error(), EINVAL);
}

// perftest takes it for granted that its send is done when the answer comes by another QP: the
// acknowledgement must not come behind, so both ways of a node to another have one lane.
TEST(Xrc, BothQpsOfAWayHaveOneLane) {
  Scene scene;
  Receiver& there = *scene.first;
  sim::Queue more[2];
  for (sim::Queue& qp : more) {  // connections between that would move the turn of the lanes
    qp = scene.pair.b.app->make_qp(hca::QpType::rc, scene.pair.b.cq, scene.pair.b.cq,
                                   {4, 4, 1, 1, 0});
    sim::Path path;
    ASSERT_EQ(scene.pair.b.app->connect(qp, path, scene.pair.cluster.now()), 0);
  }
  sim::Queue back = there.app.make_qp(hca::QpType::xrc_send, there.cq, there.cq, {4, 0, 1, 1, 64});
  sim::Path path;
  path.dest_qpn = 0x4444;  // nobody: what leaves is enough
  ASSERT_EQ(there.app.connect(back, path, scene.pair.cluster.now()), 0);
  there.post(1, 0, 100);
  scene.send(there.srq, 1, 0, 100);
  const hca::Sge piece{there.address(0), 8, there.keys.lkey};
  ASSERT_EQ(there.app.post(back, {.sges = {&piece, 1}, .xrc_srqn = 1}), 0);
  scene.pair.cluster.sent().clear();
  there.app.ring(scene.pair.cluster.now());
  scene.pair.cluster.run(scene.pair.cluster.now() + 2000);
  std::vector<std::pair<emu::Vl, emu::Vl>> lanes;
  for (const emu::TxDesc& desc : scene.pair.cluster.sent())
    if (desc.dest == 0) lanes.emplace_back(desc.vl_in, desc.vl_out);
  ASSERT_GE(lanes.size(), 2U);
  for (const auto& lane : lanes) EXPECT_EQ(lane, lanes.front());
}

// An SRQ's CQ overruns: each QP that brings a message there goes to ERR, also one that served
// another SRQ before. Programs that use none of the CQ hear of it.
TEST(Xrc, ACqThatBrokeFailsWhoeverCompletesIntoIt) {
  Scene scene;
  sim::Completions small = scene.second->app.make_cq(2);
  sim::Shared srq = scene.second->app.make_xrc_srq(scene.second->xrcd, small, 16);
  const emu::Cycle now = scene.pair.cluster.now();
  sim::App& sender = *scene.pair.a.app;
  sim::Queue from =
      sender.make_qp(hca::QpType::xrc_send, scene.pair.a.cq, scene.pair.a.cq, {32, 0, 2, 1, 64});
  const sim::Queue to = scene.first->app.make_xrc_recv(scene.first->xrcd);
  sim::Path path;
  path.dest = 1;
  path.dest_qpn = to.number;
  ASSERT_EQ(sender.connect(from, path, now), 0);
  path.dest = 0;
  path.dest_qpn = from.number;
  ASSERT_EQ(scene.first->app.connect(to, path, now), 0);
  const hca::Sge into{scene.second->address(0), 100, scene.second->keys.lkey};
  for (std::uint64_t id = 0; id < 8; ++id) {
    ASSERT_EQ(sim::App::post_shared(srq, id, {&into, 1}), 0);
    scene.first->post(id, 0, 100);
  }
  const hca::Sge piece = scene.pair.a.sge(0, 100);
  const auto send = [&](const sim::Shared& named) {
    EXPECT_EQ(sender.post(from, {.sges = {&piece, 1}, .xrc_srqn = named.number}), 0);
    sender.ring(scene.pair.cluster.now());
    return test::statuses(scene.run());
  };
  const auto state = [&](const sim::Queue& qp) {
    return scene.host.query_qp(scene.first->app.client(), qp.number)->state;
  };
  EXPECT_EQ(send(scene.first->srq), std::vector{WcStatus::success});
  for (std::uint64_t id = 0; id < 3; ++id) scene.send(srq, id, 0, 100);
  EXPECT_NE(test::statuses(scene.run()), std::vector(3, WcStatus::success));
  EXPECT_TRUE(scene.pair.cluster.told(1).heard(hca::AsyncEvent::cq_err));
  EXPECT_TRUE(scene.pair.cluster.told(1).heard(hca::AsyncEvent::qp_fatal));
  EXPECT_EQ(state(scene.to), hca::QpState::err);
  EXPECT_EQ(state(to), hca::QpState::rts);
  EXPECT_EQ(send(scene.first->srq), std::vector{WcStatus::success});
  EXPECT_EQ(send(srq), std::vector{WcStatus::retry_exc_err});
  EXPECT_EQ(state(to), hca::QpState::err);
}

// A program may have it open more than once: each handle hears of each event, and is let go for
// itself.
TEST(Xrc, EachHandleHearsOfAnEvent) {
  Scene scene;
  const hca::ClientId maker = scene.first->app.client();
  const std::uint32_t own = scene.host.open_xrcd(maker, &kFile, true, false).value();
  const std::uint32_t again = scene.host.open_qp(maker, scene.to.number, own).value();
  EXPECT_EQ(again & hca::kQpNumberMask, scene.to.number);
  EXPECT_NE(again, scene.to.number);
  sim::Shared nobody = scene.first->srq;
  nobody.number = 77;
  scene.send(nobody, 1, 0, 100);
  EXPECT_EQ(test::statuses(scene.run()), std::vector{WcStatus::rem_inv_req_err});
  std::vector<std::uint32_t> heard;
  for (const auto& [event, handle] : scene.pair.cluster.told(1).asyncs) {
    if (event == hca::AsyncEvent::qp_req_err) heard.push_back(handle);
  }
  ASSERT_EQ(heard.size(), 3u);  // with the second program's
  EXPECT_EQ(heard.front(), scene.to.number);
  EXPECT_EQ(heard.back(), again);
  EXPECT_EQ(scene.host.destroy_qp(maker, again), 0);
  EXPECT_EQ(scene.host.close_xrcd(maker, own), 0);
  EXPECT_EQ(scene.host.destroy_qp(maker, again), ENOENT);
  EXPECT_EQ(scene.host.open_qp(maker, scene.to.number, scene.first->xrcd).value(), again);
  EXPECT_EQ(scene.host.destroy_qp(maker, scene.to.number), 0);
  EXPECT_EQ(scene.host.destroy_qp(maker, scene.to.number), ENOENT);
  EXPECT_TRUE(scene.host.query_qp(maker, scene.to.number).has_value());
}

// The memory of a program that is killed goes before its connection: to the sender its SRQ has
// gone, as it has a moment later.
TEST(Xrc, AProgramDiesWithAnSrq) {
  for (const WrOpcode opcode :
       {WrOpcode::send, WrOpcode::rdma_write, WrOpcode::rdma_read, WrOpcode::atomic_fadd}) {
    Scene scene;
    alignas(8) std::array<std::uint8_t, 100'000> bytes{};
    const hca::MrKeys keys = scene.second->app.reg(bytes.data(), bytes.size(), test::kAll, false);
    const std::uint64_t at = reinterpret_cast<std::uint64_t>(bytes.data());
    const std::uint32_t length = opcode == WrOpcode::atomic_fadd ? 8 : 100'000;
    const hca::Sge into{at, length, keys.lkey};
    ASSERT_EQ(sim::App::post_shared(scene.second->srq, 1, {&into, 1}), 0);
    scene.pair.cluster.memory().end(scene.second->app.client());
    const hca::Sge piece = scene.pair.a.sge(0, length);
    scene.post({.opcode = opcode,
                .sges = {&piece, 1},
                .remote_addr = at,
                .rkey = keys.rkey,
                .xrc_srqn = scene.second->srq.number});
    EXPECT_EQ(test::statuses(scene.run()), std::vector{WcStatus::rem_inv_req_err})
        << static_cast<int>(opcode);
  }
}

}  // namespace
