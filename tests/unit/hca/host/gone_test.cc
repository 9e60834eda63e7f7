// Memory and keys that go while a peer uses them: it is refused with the same status whichever way
// the bytes went, and the program that they were of hears why.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/unit/hca/host/pair.h"

namespace {

using hca::AsyncEvent;
using hca::QpState;
using hca::TroubleKind;
using hca::WcStatus;
using hca::WrOpcode;
using test::Pair;
using test::PairOptions;

constexpr std::uint32_t kLong = 600'000;  // more packets than a burst has

QpState state_of_peer(Pair& pair) {
  return pair.cluster.host(1).query_qp(pair.b.app->client(), pair.b.qp.number)->state;
}

// What b's log is told until its QP is in ERR, each once: no line is written twice in a row.
std::vector<hca::Trouble> logged(Pair& pair) {
  std::vector<hca::Trouble> told = pair.cluster.told(1).troubles;
  std::erase_if(told, [](const auto& trouble) { return trouble.kind == TroubleKind::no_qp; });
  const auto again = std::ranges::unique(told);
  told.erase(again.begin(), again.end());
  return told;
}

// All of it from or into the beginning of b's memory.
void post_remote(Pair& pair, WrOpcode opcode, std::uint32_t length) {
  const hca::Sge piece = pair.a.sge(0, length);
  ASSERT_EQ(pair.post({.opcode = opcode,
                       .sges = {&piece, 1},
                       .remote_addr = pair.b.address(0),
                       .rkey = pair.b.keys.rkey}),
            0);
}

TEST(Gone, TheKeyMidway) {
  for (const WrOpcode opcode : {WrOpcode::rdma_write, WrOpcode::rdma_read}) {
    for (const bool mapped : {true, false}) {
      SCOPED_TRACE(testing::Message() << static_cast<int>(opcode) << ", mapped " << mapped);
      PairOptions options;
      options.mapped = mapped;
      Pair pair(options);
      post_remote(pair, opcode, kLong);
      ASSERT_TRUE(pair.run(pair.cluster.now() + 5000).first.empty());
      ASSERT_EQ(pair.cluster.host(1).deregister_mr(pair.b.app->client(), pair.b.keys.lkey), 0);
      EXPECT_EQ(test::statuses(pair.run().first), std::vector{WcStatus::rem_access_err});
      EXPECT_TRUE(pair.cluster.told(1).heard(AsyncEvent::qp_access_err));
      EXPECT_EQ(state_of_peer(pair), QpState::err);
      ASSERT_EQ(logged(pair).size(), 1u);
      EXPECT_EQ(logged(pair)[0].kind, TroubleKind::remote_key);
      EXPECT_EQ(logged(pair)[0].key, pair.b.keys.rkey);
      EXPECT_EQ(logged(pair)[0].fault, hca::KeyFault::unknown);
    }
  }
}

TEST(Gone, TheMemory) {
  for (const WrOpcode opcode : {WrOpcode::rdma_write, WrOpcode::rdma_read, WrOpcode::atomic_fadd}) {
    SCOPED_TRACE(static_cast<int>(opcode));
    PairOptions options;
    options.mapped = false;
    Pair pair(options);
    pair.cluster.memory().unmap(pair.b.bytes.data(), 4096);
    post_remote(pair, opcode, 8);
    EXPECT_EQ(test::statuses(pair.run().first), std::vector{WcStatus::rem_op_err});
    EXPECT_TRUE(pair.cluster.told(1).heard(AsyncEvent::qp_access_err));
    EXPECT_EQ(state_of_peer(pair), QpState::err);
    ASSERT_EQ(logged(pair).size(), 1u);
    EXPECT_EQ(logged(pair)[0].kind, TroubleKind::remote_memory);
    EXPECT_EQ(logged(pair)[0].peer_lid, emu::lid_of(0));
  }
}

TEST(Gone, TheMemoryOfAReceive) {
  for (const hca::QpType type : {hca::QpType::rc, hca::QpType::uc}) {
    PairOptions options;
    options.mapped = false;
    options.type = type;
    Pair pair(options);
    pair.cluster.memory().unmap(pair.b.bytes.data(), 4096);
    pair.expect_recv(1, pair.b.sge(0, 100));
    post_remote(pair, WrOpcode::send, 100);
    EXPECT_EQ(test::statuses(pair.run().second), std::vector{WcStatus::loc_prot_err});
    ASSERT_EQ(logged(pair).size(), 1u);
    EXPECT_EQ(logged(pair)[0].kind, TroubleKind::remote_memory);
  }
}

// A READ that ends with its responder's QP, because a request of that QP's own program finds no
// memory, is no mistake of the reader's: the request's completion says what happened.
TEST(Gone, TheRespondersOwnRequest) {
  PairOptions options;
  options.mapped = false;
  options.link.slots = 32;  // the answer waits for buffers, and the request takes turns with it
  Pair pair(options);
  pair.cluster.memory().unmap(&pair.b.bytes[kLong], 4096);
  post_remote(pair, WrOpcode::rdma_read, kLong);
  pair.run(pair.cluster.now() + 5000);  // in the middle of the answer
  const hca::Sge gone = pair.b.sge(kLong, 100);
  ASSERT_EQ(pair.b.app->post(pair.b.qp, {.sges = {&gone, 1}}), 0);
  pair.b.app->ring(pair.cluster.now());
  EXPECT_EQ(test::statuses(pair.run().second), std::vector{WcStatus::loc_prot_err});
  EXPECT_FALSE(pair.cluster.told(1).heard(AsyncEvent::qp_access_err));
  EXPECT_EQ(state_of_peer(pair), QpState::err);
  ASSERT_EQ(logged(pair).size(), 1u);
  EXPECT_EQ(logged(pair)[0].kind, TroubleKind::ended);
}

// A WRITE of UC is dropped in the middle, and nobody but the log says why.
TEST(Gone, TheKeyMidwayOfUc) {
  PairOptions options;
  options.type = hca::QpType::uc;
  Pair pair(options);
  post_remote(pair, WrOpcode::rdma_write, kLong);
  pair.run(pair.cluster.now() + 5000);
  ASSERT_EQ(pair.cluster.host(1).deregister_mr(pair.b.app->client(), pair.b.keys.lkey), 0);
  EXPECT_EQ(test::statuses(pair.run().first), std::vector{WcStatus::success});
  EXPECT_EQ(state_of_peer(pair), QpState::rts);
  ASSERT_EQ(logged(pair).size(), 1u);
  EXPECT_EQ(logged(pair)[0].kind, TroubleKind::remote_key);
}

}  // namespace
