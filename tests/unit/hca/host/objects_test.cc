// Objects, the QP state machine, and what belongs to whom.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <new>

#include "tests/unit/hca/host/pair.h"

namespace {

using hca::QpState;
using hca::QpType;
using test::Pair;
using test::PairOptions;

// A busy object cannot go; another client's object does not exist.
TEST(Objects, BusyAndForeign) {
  Pair pair;
  hca::Host& host = pair.cluster.host(0);
  EXPECT_EQ(host.destroy_pd(pair.a.app->client(), pair.a.app->pd()), EBUSY);
  EXPECT_EQ(host.destroy_cq(pair.a.app->client(), pair.a.cq.number), EBUSY);
  sim::App other(host);
  EXPECT_EQ(host.destroy_qp(other.client(), pair.a.qp.number), ENOENT);
  EXPECT_EQ(host.deregister_mr(other.client(), pair.a.keys.lkey), ENOENT);
  EXPECT_EQ(host.query_qp(other.client(), pair.a.qp.number).error(), ENOENT);
  EXPECT_EQ(host.destroy_qp(pair.a.app->client(), pair.a.qp.number), 0);
  EXPECT_EQ(host.destroy_cq(pair.a.app->client(), pair.a.cq.number), 0);
}

// What a dead process had is all given back: the node can be filled again and again.
TEST(Objects, ClosingAClientFreesEverything) {
  hca::HostOptions options;
  options.qps_max = 8;
  options.cqs_max = 4;
  options.mrs_max = 4;
  options.pds_max = 2;
  options.clients_max = 2;
  test::Cluster cluster({}, options);
  std::vector<std::uint8_t> bytes(64);
  for (int round = 0; round < 50; ++round) {
    sim::App app(cluster.host(0));
    auto cq = app.make_cq(4);
    for (int i = 0; i < 6; ++i) app.make_qp(QpType::rc, cq, cq, {1, 1, 1, 1, 0});
    for (int i = 0; i < 3; ++i) app.reg(bytes.data(), bytes.size(), 0);
  }
}

// Nor to the next CQ: who reads an event of the old one as it goes does not take it for another's.
TEST(Objects, NumbersOfDestroyedCqsRest) {
  hca::HostOptions options;
  options.cqs_max = 4;
  test::Cluster cluster({}, options);
  sim::App app(cluster.host(0));
  for (std::uint32_t i = 0; i < 12; ++i) {
    const auto cq = app.make_cq(4);
    EXPECT_EQ(cq.number, i % 4);
    ASSERT_EQ(cluster.host(0).destroy_cq(app.client(), cq.number), 0);
  }
}

constexpr hca::QpCapacity kLargest{hca::kMaxQpWr, 1, hca::kMaxSge, 1, hca::kMaxInline};

// What /proc says of this process, in bytes.
struct Footprint {
  std::size_t space = 0;
  std::size_t resident = 0;
};
Footprint footprint() {
  Footprint pages;
  std::FILE* file = std::fopen("/proc/self/statm", "r");
  EXPECT_EQ(std::fscanf(file, "%zu %zu", &pages.space, &pages.resident), 2);
  std::fclose(file);
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  return {pages.space * page, pages.resident * page};
}

// A ring's pages, of which nobody writes to more than the header.
struct Untouched {
  explicit Untouched(std::size_t size) : bytes(size) {
    void* got = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    EXPECT_NE(got, MAP_FAILED);
    data = static_cast<std::uint8_t*>(got);
  }
  ~Untouched() { ::munmap(data, bytes); }
  Untouched(const Untouched&) = delete;
  Untouched& operator=(const Untouched&) = delete;
  std::span<std::uint8_t> span() const { return {data, bytes}; }
  std::uint8_t* data = nullptr;
  std::size_t bytes;
};

// A program asks for the largest queues and posts nothing: the node's memory stays the node's.
TEST(Objects, MemoryOfAnIdleQpIsNotTouched) {
  test::Cluster cluster({});
  hca::Host& host = cluster.host(0);
  sim::App app(host);
  const auto cq = app.make_cq(4);
  std::vector<std::unique_ptr<Untouched>> regions;
  const Footprint before = footprint();
  for (int i = 0; i < 8; ++i) {
    regions.push_back(std::make_unique<Untouched>(hca::qp_layout(kLargest).bytes));
    const hca::QpSpec spec{app.pd(), cq.number, cq.number, QpType::rc, false, kLargest};
    ASSERT_TRUE(host.create_qp(app.client(), spec, regions.back()->span()).has_value());
  }
  const Footprint after = footprint();
  EXPECT_LT(after.resident, before.resident + (std::size_t{64} << 20));  // of 304 MiB
}

// The QP for which there is no memory leaves nothing behind: not a slot, not a use of its parts.
TEST(Objects, NoMemoryForAQp) {
  hca::HostOptions options;
  options.qps_max = 4;  // two of them are management's
  test::Cluster cluster({}, options);
  hca::Host& host = cluster.host(0);
  const hca::QpCapacity small{1, 1, 1, 1, 0};
  const Untouched region(hca::qp_layout(kLargest).bytes);
  {
    sim::App app(host);
    const auto cq = app.make_cq(4);
    const hca::QpSpec spec{app.pd(), cq.number, cq.number, QpType::rc, false, kLargest};
    rlimit before{};
    ASSERT_EQ(::getrlimit(RLIMIT_AS, &before), 0);
    const rlimit little{footprint().space + (std::size_t{4} << 20), before.rlim_max};
    ASSERT_EQ(::setrlimit(RLIMIT_AS, &little), 0);
    int refused = 0;
    for (int i = 0; i < 10; ++i) {
      try {
        (void)host.create_qp(app.client(), spec, region.span());
      } catch (const std::bad_alloc&) {
        ++refused;
      }
    }
    ASSERT_EQ(::setrlimit(RLIMIT_AS, &before), 0);
    EXPECT_EQ(refused, 10);
    EXPECT_EQ(host.objects().qps, 0u);
    for (int i = 0; i < 2; ++i) (void)app.make_qp(QpType::rc, cq, cq, small);
  }
  EXPECT_EQ(host.objects().cqs, 0u);
  EXPECT_EQ(host.objects().pds, 0u);
}

// A number is not given to the next QP: late packets for the old one miss it.
TEST(Objects, NumbersOfDestroyedQpsRest) {
  test::Cluster cluster({});
  sim::App app(cluster.host(0));
  auto cq = app.make_cq(4);
  const auto first = app.make_qp(QpType::rc, cq, cq, {1, 1, 1, 1, 0});
  ASSERT_EQ(cluster.host(0).destroy_qp(app.client(), first.number), 0);
  for (int i = 0; i < 100; ++i) {
    const auto next = app.make_qp(QpType::rc, cq, cq, {1, 1, 1, 1, 0});
    EXPECT_NE(next.number, first.number);
    ASSERT_EQ(cluster.host(0).destroy_qp(app.client(), next.number), 0);
  }
}

// Nor is a key: the slot that is free for longest comes next, so an old key misses for long.
TEST(Objects, KeysOfGoneRegionsRest) {
  test::Cluster cluster({});
  hca::Host& host = cluster.host(0);
  sim::App app(host);
  const auto reg = [&] {
    return host.register_mr(app.client(), app.pd(), {0x1000, 0x1000, 64, 0});
  };
  const std::uint32_t first = reg()->lkey;
  ASSERT_EQ(host.deregister_mr(app.client(), first), 0);
  for (int i = 0; i < 1000; ++i) {
    const std::uint32_t key = reg()->lkey;
    ASSERT_NE(key, first) << i;
    ASSERT_EQ(host.deregister_mr(app.client(), key), 0);
    const auto window = host.alloc_mw(app.client(), app.pd(), 1);
    ASSERT_NE(*window, first) << i;
    ASSERT_EQ(host.dealloc_mw(app.client(), *window), 0);
  }
}

// Registration: remote write without local write, wrap-around and unknown PDs are refused.
TEST(Objects, RegistrationChecks) {
  test::Cluster cluster({});
  hca::Host& host = cluster.host(0);
  sim::App app(host);
  EXPECT_EQ(host.register_mr(app.client(), app.pd(), {0x1000, 0x1000, 64, hca::kAccessRemoteWrite})
                .error(),
            EINVAL);
  EXPECT_EQ(host.register_mr(app.client(), app.pd(), {~0ull - 10, 0, 64, 0}).error(), EINVAL);
  EXPECT_EQ(host.register_mr(app.client(), 1000, {0x1000, 0x1000, 64, 0}).error(), ENOENT);
  const auto keys = host.register_mr(app.client(), app.pd(), {0x1000, 0x1000, 64, 0});
  ASSERT_TRUE(keys.has_value());
  const auto again =
      host.reregister_mr(app.client(), keys->lkey, 4, 0, {0, 0, 0, hca::kAccessLocalWrite});
  ASSERT_TRUE(again.has_value());
  EXPECT_EQ(again->lkey, keys->lkey);  // the same bytes, the same key
  const auto moved = host.reregister_mr(app.client(), keys->lkey, 1, 0, {0x2000, 0x2000, 64, 0});
  ASSERT_TRUE(moved.has_value());
  EXPECT_NE(moved->lkey, keys->lkey);
  EXPECT_EQ(host.deregister_mr(app.client(), keys->lkey), ENOENT);
  EXPECT_EQ(host.deregister_mr(app.client(), moved->lkey), 0);
}

// Each missing required attribute, and each one too many, is EINVAL (man page of ibv_modify_qp).
TEST(Modify, RequiredMasks) {
  test::Cluster cluster({});
  sim::App app(cluster.host(0));
  auto cq = app.make_cq(4);
  auto qp = app.make_qp(QpType::rc, cq, cq, {1, 1, 1, 1, 0});
  const std::uint32_t steps[] = {
      hca::kQpState | hca::kQpPkeyIndex | hca::kQpPort | hca::kQpAccessFlags,
      hca::kQpState | hca::kQpAv | hca::kQpPathMtu | hca::kQpDestQpn | hca::kQpRqPsn |
          hca::kQpMaxDestRdAtomic | hca::kQpMinRnrTimer,
      hca::kQpState | hca::kQpTimeout | hca::kQpRetryCnt | hca::kQpRnrRetry | hca::kQpSqPsn |
          hca::kQpMaxQpRdAtomic};
  hca::QpAttributes a{};
  a.port_num = 1;
  a.path_mtu = 3;
  a.av.dlid = 2;
  a.av.port_num = 1;
  const QpState states[] = {QpState::init, QpState::rtr, QpState::rts};
  a.state = QpState::err;
  EXPECT_EQ(app.modify(qp, a, hca::kQpState, 0), EINVAL);  // from RESET there is only INIT
  for (int step = 0; step < 3; ++step) {
    a.state = states[step];
    for (int bit = 0; bit < 21; ++bit) {
      const std::uint32_t mask = steps[step];
      if ((mask & 1u << bit) != 0 && bit != 0) {
        EXPECT_EQ(app.modify(qp, a, mask & ~(1u << bit), 0), EINVAL) << step << " without " << bit;
      }
    }
    EXPECT_EQ(app.modify(qp, a, steps[step] | hca::kQpQkey, 0), EINVAL);
    ASSERT_EQ(app.modify(qp, a, steps[step], 0), 0);
  }
  a.state = QpState::init;
  EXPECT_EQ(app.modify(qp, a, steps[0], 0), EINVAL);  // no way back but RESET
}

// Values that the port does not have are EINVAL.
TEST(Modify, Values) {
  test::Cluster cluster({});
  sim::App app(cluster.host(0));
  auto cq = app.make_cq(4);
  auto qp = app.make_qp(QpType::rc, cq, cq, {1, 1, 1, 1, 0});
  const std::uint32_t mask = hca::kQpState | hca::kQpPkeyIndex | hca::kQpPort | hca::kQpAccessFlags;
  hca::QpAttributes a{};
  a.state = QpState::init;
  a.port_num = 2;
  EXPECT_EQ(app.modify(qp, a, mask, 0), EINVAL);
  a.port_num = 1;
  a.pkey_index = 5;
  EXPECT_EQ(app.modify(qp, a, mask, 0), EINVAL);
  a.pkey_index = 0;
  EXPECT_EQ(app.modify(qp, a, mask, 0), 0);
  EXPECT_EQ(app.modify(qp, a, hca::kQpState | hca::kQpCurState, 0), EINVAL);
  a.state = QpState::rtr;
  a.path_mtu = 3;
  const std::uint32_t path = hca::kQpState | hca::kQpAv | hca::kQpPathMtu | hca::kQpDestQpn |
                             hca::kQpRqPsn | hca::kQpMaxDestRdAtomic | hca::kQpMinRnrTimer;
  const struct {
    std::uint8_t port_num, is_global, sgid_index, sl;
    emu::Lid dlid;
    int error;
  } rows[] = {
      {0, 0, 0, 0, 2, EINVAL}, {2, 0, 0, 0, 2, EINVAL},  {7, 1, 0, 0, 2, EINVAL},
      {1, 1, 1, 0, 2, EINVAL}, {1, 1, 77, 0, 2, EINVAL}, {1, 0, 0, 16, 2, EINVAL},
      {1, 0, 0, 0, 0, EINVAL}, {1, 0, 77, 0, 2, 0},
  };
  for (const auto& row : rows) {
    a.av = {};
    a.av.dlid = row.dlid;
    a.av.sl = row.sl;
    a.av.port_num = row.port_num;
    a.av.is_global = row.is_global;
    a.av.sgid_index = row.sgid_index;
    EXPECT_EQ(app.modify(qp, a, path, 0), row.error) << &row - rows;
  }
}

// a's requests that have begun end, and it is told when they have.
void drain(Pair& pair) {
  pair.cluster.host(0).advance(pair.cluster.now());
  hca::QpAttributes a{};
  a.state = QpState::sqd;
  a.en_sqd_async_notify = 1;
  ASSERT_EQ(pair.a.app->modify(pair.a.qp, a, hca::kQpState | hca::kQpEnSqdAsyncNotify,
                               pair.cluster.now()),
            0);
}
void go_on(Pair& pair) {
  hca::QpAttributes a{};
  a.state = QpState::rts;
  ASSERT_EQ(pair.a.app->modify(pair.a.qp, a, hca::kQpState, pair.cluster.now()), 0);
}

// SQD: the send under way ends, the event is told, posts wait until RTS.
TEST(Modify, DrainAndGoOn) {
  Pair pair;
  for (int i = 0; i < 2; ++i) pair.expect_recv(1, pair.b.sge(0, 50000));
  const hca::Sge from = pair.a.sge(0, 50000);
  ASSERT_EQ(pair.post({.wr_id = 1, .sges = {&from, 1}}), 0);
  drain(pair);
  ASSERT_EQ(pair.post({.wr_id = 2, .sges = {&from, 1}}), 0);
  EXPECT_EQ(pair.run().first.size(), 1u);
  EXPECT_TRUE(pair.cluster.told(0).heard(hca::AsyncEvent::sq_drained));
  go_on(pair);
  EXPECT_EQ(pair.run().first.size(), 1u);
}

// IBA 10.3.1.5: what has not begun waits, also to fail.
TEST(Modify, AWrongRequestBehindTheDrainFailsAfterIt) {
  Pair pair;
  const hca::Sge good = pair.a.sge(0, 64);
  hca::Sge wrong = good;
  wrong.lkey += 1;
  pair.expect_recv(1, pair.b.sge(0, 64));
  ASSERT_EQ(pair.a.app->post(pair.a.qp, {.wr_id = 1, .sges = {&good, 1}}), 0);
  ASSERT_EQ(pair.post({.wr_id = 2, .sges = {&wrong, 1}}), 0);
  drain(pair);
  EXPECT_EQ(test::statuses(pair.run().first), std::vector{hca::WcStatus::success});
  EXPECT_TRUE(pair.cluster.told(0).heard(hca::AsyncEvent::sq_drained));
  go_on(pair);
  EXPECT_EQ(test::statuses(pair.run().first), std::vector{hca::WcStatus::loc_prot_err});
}

// The next PSN is asked for where the queue stands still, and whether SQD's drain goes on; the
// event is for who asked for it in this transition.
TEST(Modify, WhatSqdSays) {
  Pair pair;
  const hca::Sge from = pair.a.sge(0, 8);
  pair.expect_recv(1, pair.b.sge(0, 8));
  ASSERT_EQ(pair.post({.sges = {&from, 1}}), 0);
  pair.run();
  const auto query = [&] {
    return *pair.cluster.host(0).query_qp(pair.a.app->client(), pair.a.qp.number);
  };
  const auto go = [&](QpState to, std::uint8_t notify = 0) {
    hca::QpAttributes a{};
    a.state = to;
    a.en_sqd_async_notify = notify;
    const std::uint32_t mask = hca::kQpState | (notify != 0 ? hca::kQpEnSqdAsyncNotify : 0);
    EXPECT_EQ(pair.a.app->modify(pair.a.qp, a, mask, pair.cluster.now()), 0);
  };
  const auto drained = [&] {
    const auto& told = pair.cluster.told(0).asyncs;
    return std::count_if(told.begin(), told.end(),
                         [](const auto& one) { return one.first == hca::AsyncEvent::sq_drained; });
  };
  constexpr std::uint32_t kNext = 0xfffff1;
  EXPECT_EQ(query().sq_psn, kNext);
  go(QpState::sqd, 1);
  EXPECT_EQ(query().sq_psn, kNext);
  EXPECT_EQ(query().sq_draining, 0);
  EXPECT_EQ(query().en_sqd_async_notify, 1);
  EXPECT_EQ(drained(), 1);
  go(QpState::rts);
  go(QpState::sqd);
  EXPECT_EQ(query().en_sqd_async_notify, 0);
  EXPECT_EQ(drained(), 1);
  go(QpState::rts);
  ASSERT_EQ(pair.post({.sges = {&from, 1}}), 0);  // nobody receives it
  pair.run(pair.cluster.now() + 10);
  go(QpState::sqd);
  EXPECT_EQ(query().sq_draining, 1);
  go(QpState::rts);
  EXPECT_EQ(query().sq_draining, 0);
  go(QpState::sqd);
  EXPECT_EQ(query().sq_draining, 1);
  go(QpState::err);
  EXPECT_EQ(query().sq_draining, 0);
  EXPECT_EQ(query().sq_psn, kNext + 1);
  pair.run();
  go(QpState::reset);
  EXPECT_EQ(query().sq_psn, 0u);
}

// SQD: a request that waits for its repetition is outstanding, so the queue is not drained.
TEST(Modify, DrainWaitsForRepetitions) {
  PairOptions options;
  options.path.min_rnr_timer = 14;
  Pair pair(options);
  const hca::Sge from = pair.a.sge(0, 100);
  ASSERT_EQ(pair.post({.wr_id = 1, .sges = {&from, 1}}), 0);
  pair.run(pair.cluster.now() + 1000);
  ASSERT_EQ(pair.cluster.host(0).counters().rnr_naks_received, 1u);
  hca::QpAttributes a{};
  a.state = QpState::sqd;
  a.en_sqd_async_notify = 1;
  ASSERT_EQ(pair.a.app->modify(pair.a.qp, a, hca::kQpState | hca::kQpEnSqdAsyncNotify,
                               pair.cluster.now()),
            0);
  EXPECT_FALSE(pair.cluster.told(0).heard(hca::AsyncEvent::sq_drained));
  const auto attributes = pair.cluster.host(0).query_qp(pair.a.app->client(), pair.a.qp.number);
  EXPECT_EQ(attributes->sq_draining, 1);
  pair.expect_recv(9, pair.b.sge(0, 100));
  EXPECT_EQ(pair.run(pair.cluster.now() + 100'000).first.size(), 1u);
  EXPECT_TRUE(pair.cluster.told(0).heard(hca::AsyncEvent::sq_drained));
}

// SQD: a QP that waits to send a request (or a response) may get another service level. It leaves
// the queue that it is in, of its old class, when it ends.
TEST(Modify, AnotherServiceLevelWhileItWaits) {
  for (const bool responds : {false, true}) {
    PairOptions options;
    options.link.slots = 4;
    Pair pair(options);
    const hca::Sge piece = pair.a.sge(0, 500'000);
    ASSERT_EQ(pair.post({.opcode = responds ? hca::WrOpcode::rdma_read : hca::WrOpcode::rdma_write,
                         .sges = {&piece, 1},
                         .remote_addr = pair.b.address(0),
                         .rkey = pair.b.keys.rkey}),
              0);
    pair.run(pair.cluster.now() + 1000);
    test::Side& me = responds ? pair.b : pair.a;
    hca::Host& host = pair.cluster.host(responds ? 1 : 0);
    hca::QpAttributes a{};
    a.state = QpState::sqd;
    a.av.dlid = emu::lid_of(responds ? 0 : 1);
    a.av.port_num = 1;
    a.av.sl = 1;
    ASSERT_EQ(me.app->modify(me.qp, a, hca::kQpState, pair.cluster.now()), 0);
    ASSERT_EQ(me.app->modify(me.qp, a, hca::kQpState | hca::kQpAv, pair.cluster.now()), 0);
    ASSERT_EQ(host.destroy_qp(me.app->client(), me.qp.number), 0);
    pair.run(pair.cluster.now() + 1000);
    EXPECT_TRUE(host.idle());
  }
}

// Resizing keeps what waits in the CQ, and refuses to become too small for it.
TEST(Objects, ResizeCq) {
  Pair pair;
  for (unsigned i = 0; i < 3; ++i) pair.a.app->post_recv(pair.a.qp, i, {});
  ASSERT_EQ(pair.a.app->modify(pair.a.qp, {.state = QpState::err}, hca::kQpState, 0), 0);
  std::vector<std::uint64_t> memory(hca::cq_bytes(4) / 8 + 16);
  auto* region = reinterpret_cast<std::uint8_t*>(
      (reinterpret_cast<std::uintptr_t>(memory.data()) + 63) & ~std::uintptr_t{63});
  hca::Host& host = pair.cluster.host(0);
  EXPECT_EQ(host.resize_cq(pair.a.app->client(), pair.a.cq.number, 2, {region, hca::cq_bytes(2)}),
            EINVAL);
  ASSERT_EQ(host.resize_cq(pair.a.app->client(), pair.a.cq.number, 4, {region, hca::cq_bytes(4)}),
            0);
  pair.a.cq.page = reinterpret_cast<hca::CqPage*>(region);
  pair.a.cq.depth = 4;
  const auto done = pair.a.take();
  ASSERT_EQ(done.size(), 3u);
  for (unsigned i = 0; i < 3; ++i) EXPECT_EQ(done[i].wr_id, i);
}

}  // namespace
