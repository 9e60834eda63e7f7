// The inline receive from end to end: hcad leaves a short message in the shared page, and the
// library brings it to its memory, at the latest before the program may do without its completion.
#include <sched.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>

#include "hca/verbs/objects.h"
#include "tests/unit/hca/verbs/node.h"

namespace {

using hca::InlineRecvState;
using test::Node;
using test::Program;

constexpr std::size_t kPage = 4096;
constexpr std::uint32_t kBytes = 64;

class InlineRecv : public testing::Test {
 protected:
  InlineRecv() {
    std::tie(from, to) = program.make_pair();
    memory = static_cast<std::uint8_t*>(
        ::mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    region = ibv_reg_mr(program.pd, memory, kPage, IBV_ACCESS_LOCAL_WRITE);
    for (std::size_t i = 0; i < kBytes; ++i) program.bytes[i] = static_cast<std::uint8_t>(3 * i);
  }
  ~InlineRecv() override {
    if (region != nullptr) {
      EXPECT_EQ(ibv_dereg_mr(region), 0);
    }
    ::munmap(memory, kPage);
  }
  void receive(std::uint32_t offset, std::uint32_t length = kBytes) const {
    ibv_sge piece{reinterpret_cast<std::uint64_t>(memory) + offset, length, region->lkey};
    ibv_recv_wr wr{offset, nullptr, &piece, 1};
    ibv_recv_wr* bad = nullptr;
    ASSERT_EQ(ibv_post_recv(to, &wr, &bad), 0);
  }
  hca::InlineRecv& place() const {
    return hca::to_context(program.context)->doorbells().inline_recv;
  }
  InlineRecvState state() const { return place().state.load(); }
  // Sends a message alone, until its sender knows that it has arrived; unsignaled.
  void send(std::uint32_t length = kBytes) {
    const std::uint32_t done = hca::to_qp(to)->page().rq_head.load() + 1;
    ASSERT_EQ(program.send(from, 1, length, 0), 0);
    while (hca::to_qp(to)->page().rq_head.load() != done) ::sched_yield();
  }
  bool arrived(std::uint32_t offset = 0, std::uint32_t length = kBytes) const {
    return std::memcmp(memory + offset, program.bytes.data(), length) == 0;
  }
  bool untouched(std::uint32_t offset = 0) const {
    return std::all_of(memory + offset, memory + offset + kBytes, [](auto b) { return b == 0; });
  }

  Node node;
  Program program;
  ibv_qp* from;
  ibv_qp* to;
  std::uint8_t* memory;
  ibv_mr* region;
};

TEST_F(InlineRecv, ArrivesWithItsCompletion) {
  for (std::uint32_t i = 0; i < 16; ++i) {
    ++program.bytes[i % kBytes];
    receive(kBytes);
    send();
    ASSERT_EQ(state(), InlineRecvState::full) << i;
    ASSERT_FALSE(arrived(kBytes)) << "somebody else wrote it";
    const ibv_wc done = program.poll(1)[0];
    EXPECT_EQ(done.status, IBV_WC_SUCCESS);
    EXPECT_EQ(done.wc_flags, 0u) << "what is the library's is not the program's";
    ASSERT_TRUE(arrived(kBytes));
    ASSERT_EQ(state(), InlineRecvState::free);
  }
}

TEST_F(InlineRecv, TheExtendedCallsAlike) {
  receive(0);
  send();
  ASSERT_TRUE(untouched());
  ibv_cq_ex* cq = hca::to_cq(program.cq);
  ibv_poll_cq_attr attributes{};
  ASSERT_EQ(ibv_start_poll(cq, &attributes), 0);
  EXPECT_EQ(cq->status, IBV_WC_SUCCESS);
  EXPECT_EQ(ibv_wc_read_wc_flags(cq), 0u);
  ibv_end_poll(cq);
  EXPECT_TRUE(arrived());
}

// A peer may look at the memory before the program polls, or the message is not one piece.
TEST_F(InlineRecv, OnlyWhereNobodyElseLooksAndOfOnePiece) {
  ASSERT_EQ(program.receive(to, 1), 0);  // Program::kAccess
  send();
  EXPECT_EQ(std::memcmp(&program.bytes[32768], program.bytes.data(), kBytes), 0);
  const std::uint64_t at = reinterpret_cast<std::uint64_t>(memory);
  ibv_sge halves[] = {{at, kBytes / 2, region->lkey}, {at + kBytes, kBytes, region->lkey}};
  ibv_recv_wr wr{2, nullptr, halves, 2};
  ibv_recv_wr* bad = nullptr;
  ASSERT_EQ(ibv_post_recv(to, &wr, &bad), 0);
  send();
  EXPECT_TRUE(arrived(0, kBytes / 2));
  EXPECT_EQ(std::memcmp(memory + kBytes, &program.bytes[kBytes / 2], kBytes / 2), 0);
  receive(0, 2 * kBytes);
  send(kBytes + 1);
  EXPECT_TRUE(arrived(0, kBytes + 1));
  EXPECT_EQ(state(), InlineRecvState::free);
  EXPECT_EQ(program.poll(3).size(), 3u);
}

// The next ones are written as usual, and beside it.
TEST_F(InlineRecv, IsOneAtATime) {
  for (std::uint32_t i = 0; i < 4; ++i) {
    receive(i * kBytes);
    send();
    EXPECT_EQ(state(), InlineRecvState::full);
    EXPECT_EQ(arrived(i * kBytes), i != 0);
  }
  ASSERT_EQ(program.poll(1)[0].status, IBV_WC_SUCCESS);
  EXPECT_TRUE(arrived());
  EXPECT_EQ(state(), InlineRecvState::free);
  EXPECT_EQ(program.poll(3).size(), 3u);
}

// A receive was posted twice for the same memory: the later message stays there, as it does where
// both are written.
TEST_F(InlineRecv, IsUnderWhatIsWrittenLater) {
  for (const std::uint32_t offset : {0U, 8U, kBytes - 8, kBytes}) {
    std::memset(memory, 0, kPage);
    for (std::uint32_t i = 0; i < kBytes; ++i) program.bytes[i] = static_cast<std::uint8_t>(3 * i);
    receive(0);
    send();
    ASSERT_TRUE(untouched());
    const std::vector<std::uint8_t> first(program.bytes.begin(), program.bytes.begin() + kBytes);
    receive(offset, 2 * kBytes);
    for (std::uint32_t i = 0; i <= kBytes; ++i) program.bytes[i] = static_cast<std::uint8_t>(~i);
    send(kBytes + 1);  // too long to lie there, too
    EXPECT_TRUE(arrived(offset, kBytes + 1));
    EXPECT_EQ(program.poll(2).size(), 2u);
    EXPECT_TRUE(arrived(offset, kBytes + 1)) << offset;
    EXPECT_EQ(std::memcmp(memory, first.data(), offset), 0) << offset;
    EXPECT_EQ(state(), InlineRecvState::free);
  }
}

TEST_F(InlineRecv, IsInMemoryBeforeTheirRegionIsGivenUp) {
  receive(0);
  send();
  ASSERT_TRUE(untouched());
  ASSERT_EQ(ibv_dereg_mr(region), 0);
  region = nullptr;
  EXPECT_TRUE(arrived());
  std::memset(memory, 0, kPage);  // the program's again
  EXPECT_EQ(program.poll(1)[0].status, IBV_WC_SUCCESS);
  EXPECT_TRUE(untouched());
  EXPECT_EQ(state(), InlineRecvState::free);
}

TEST_F(InlineRecv, IsInMemoryBeforeTheirRegionMoves) {
  receive(0);
  send();
  std::vector<std::uint8_t> elsewhere(kPage);
  ASSERT_EQ(
      ibv_rereg_mr(region, IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, elsewhere.data(), kPage, 0),
      0);
  EXPECT_TRUE(arrived());
  EXPECT_EQ(program.poll(1)[0].status, IBV_WC_SUCCESS);
  ASSERT_EQ(ibv_dereg_mr(region), 0);
  region = nullptr;
}

TEST_F(InlineRecv, OfAResetQueuePairIsInMemoryAndItsPlaceFree) {
  for (int round = 0; round < 3; ++round) {
    receive(0);
    send();
    ASSERT_TRUE(untouched());
    for (ibv_qp* qp : {from, to}) {
      ibv_qp_attr reset{};
      reset.qp_state = IBV_QPS_RESET;
      ASSERT_EQ(ibv_modify_qp(qp, &reset, IBV_QP_STATE), 0);
    }
    EXPECT_TRUE(arrived());
    EXPECT_EQ(state(), InlineRecvState::free);
    std::memset(memory, 0, kPage);
    Program::connect(from, to);
    Program::connect(to, from);
  }
}

TEST_F(InlineRecv, OfADestroyedQueueIsInMemory) {
  ibv_cq* const cq = ibv_create_cq(program.context, 16, nullptr, nullptr, 0);
  ibv_qp_init_attr init{};
  init.send_cq = init.recv_cq = cq;
  init.cap = {16, 16, 1, 1, 0};
  init.qp_type = IBV_QPT_RC;
  to = ibv_create_qp(program.pd, &init);
  Program::connect(to, from);
  ibv_qp_attr reset{};
  reset.qp_state = IBV_QPS_RESET;
  ASSERT_EQ(ibv_modify_qp(from, &reset, IBV_QP_STATE), 0);
  Program::connect(from, to);
  receive(0);
  send();
  ASSERT_TRUE(untouched());
  ASSERT_EQ(ibv_destroy_qp(to), 0);
  ASSERT_EQ(ibv_destroy_cq(cq), 0);
  EXPECT_TRUE(arrived());
  EXPECT_EQ(state(), InlineRecvState::free);
}

// It is not polled, so there is nothing to fail.
TEST_F(InlineRecv, OfAResetQueuePairWhoseMemoryHasGoneIsForgotten) {
  receive(0);
  send();
  ASSERT_EQ(::mprotect(memory, kPage, PROT_NONE), 0);
  ibv_qp_attr attributes{};
  ASSERT_EQ(ibv_modify_qp(to, &attributes, IBV_QP_STATE), 0);  // RESET
  ibv_qp_init_attr init{};
  ASSERT_EQ(ibv_query_qp(to, &attributes, IBV_QP_STATE, &init), 0);
  EXPECT_EQ(attributes.qp_state, IBV_QPS_RESET);
  EXPECT_EQ(state(), InlineRecvState::free);
}

// As where its region was given up before.
TEST_F(InlineRecv, OfADestroyedQueueLeavesItsPlaceWhateverWasBefore) {
  ibv_cq* const cq = ibv_create_cq(program.context, 16, nullptr, nullptr, 0);
  place().cq = hca::to_cq(cq)->number;
  place().state.store(InlineRecvState::home);
  ASSERT_EQ(ibv_destroy_cq(cq), 0);
  EXPECT_EQ(state(), InlineRecvState::free);
}

TEST_F(InlineRecv, IntoMemoryThatHasGoneIsAnError) {
  receive(0);
  send();
  ASSERT_EQ(::mprotect(memory, kPage, PROT_NONE), 0);  // and nobody else maps something there
  EXPECT_EQ(program.poll(1)[0].status, IBV_WC_LOC_PROT_ERR);
  ibv_qp_attr attributes{};
  ibv_qp_init_attr init{};
  ASSERT_EQ(ibv_query_qp(to, &attributes, IBV_QP_STATE, &init), 0);
  EXPECT_EQ(attributes.qp_state, IBV_QPS_ERR);
  EXPECT_EQ(state(), InlineRecvState::free);
}

TEST_F(InlineRecv, OutlivesHcad) {
  receive(0);
  send();
  node.kill();
  EXPECT_EQ(program.poll(1)[0].status, IBV_WC_SUCCESS);
  EXPECT_TRUE(arrived());
}

TEST_F(InlineRecv, AProgramThatScribblesHarmsNobodyElse) {
  place().state.store(static_cast<InlineRecvState>(77));
  receive(0);
  send();
  EXPECT_TRUE(arrived()) << "written as usual";
  EXPECT_EQ(program.poll(1)[0].status, IBV_WC_SUCCESS);
}

}  // namespace
