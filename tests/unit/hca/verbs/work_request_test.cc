// Posting: both ways to say a work request say the same, what cannot be served is refused at once,
// credits and launch times are taken where they should.
#include <poll.h>

#include <cstring>

#include "emu/base/launch_ext.h"
#include "hca/verbs/objects.h"
#include "tests/unit/hca/verbs/node.h"

extern "C" {
FlitnetSetLaunch flitnet_set_launch;
FlitnetNow flitnet_now;
FlitnetRejectedBy flitnet_rejected_by;
}

namespace {

using test::Node;
using test::Program;

constexpr std::uint64_t kOps = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM |
                               IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM |
                               IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP;

class WorkRequest : public testing::Test {
 protected:
  void make(ibv_qp_type type = IBV_QPT_RC, std::uint64_t ops = kOps) {
    from = program.make_qp(type, ops);
    to = program.make_qp(type, ops);
    ASSERT_NE(from, nullptr);
    ASSERT_NE(to, nullptr);
    if (type == IBV_QPT_UD) return;
    Program::connect(from, to);
    Program::connect(to, from);
  }
  const hca::SendWqe& slot(std::uint32_t index) const {
    return *reinterpret_cast<const hca::SendWqe*>(hca::to_qp(from)->send_slot(index));
  }
  Node node;
  Program program;
  ibv_qp* from = nullptr;
  ibv_qp* to = nullptr;
};

// The same request by ibv_post_send and by ibv_wr_*: byte for byte the same slot.
TEST_F(WorkRequest, BothWaysWriteTheSameSlot) {
  make();
  for (std::size_t i = 0; i < 64; ++i) program.bytes[i] = static_cast<std::uint8_t>(i);
  ibv_sge pieces[] = {program.sge(0, 10), program.sge(32, 20)};
  ibv_send_wr wr{};
  wr.wr_id = 5;
  wr.sg_list = pieces;
  wr.num_sge = 2;
  wr.opcode = IBV_WR_RDMA_WRITE;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.wr.rdma = {reinterpret_cast<std::uint64_t>(&program.bytes[1000]), program.mr->rkey};
  ibv_send_wr* bad = nullptr;
  ASSERT_EQ(ibv_post_send(from, &wr, &bad), 0);
  ibv_qp_ex* ex = ibv_qp_to_qp_ex(from);
  ibv_wr_start(ex);
  ex->wr_id = 5;
  ex->wr_flags = IBV_SEND_SIGNALED;
  ibv_wr_rdma_write(ex, wr.wr.rdma.rkey, wr.wr.rdma.remote_addr);
  ibv_wr_set_sge_list(ex, 2, pieces);
  ASSERT_EQ(ibv_wr_complete(ex), 0);
  for (const ibv_wc& wc : program.poll(2)) EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
  EXPECT_EQ(std::memcmp(&slot(0), &slot(1), sizeof(hca::SendWqe) + sizeof pieces), 0);
  EXPECT_EQ(program.bytes[1009], 9);
  EXPECT_EQ(program.bytes[1010], 32);
}

// A list with inline data, immediate, and a READ behind: all arrive.
TEST_F(WorkRequest, ExtendedListIsServed) {
  make();
  ASSERT_EQ(program.receive(to, 1), 0);
  ASSERT_EQ(program.receive(to, 2), 0);
  std::uint32_t word = 0xabcd1234;
  ibv_qp_ex* ex = ibv_qp_to_qp_ex(from);
  ibv_wr_start(ex);
  ex->wr_id = 10;
  ex->wr_flags = 0;
  ibv_wr_send_imm(ex, 0x01020304);
  ibv_wr_set_inline_data(ex, &word, sizeof word);
  ex->wr_id = 11;
  ibv_wr_rdma_write_imm(ex, program.mr->rkey, reinterpret_cast<std::uint64_t>(&program.bytes[2000]),
                        7);
  ibv_data_buf parts[] = {{&word, 1}, {&word, 4}};
  ibv_wr_set_inline_data_list(ex, 2, parts);
  ex->wr_id = 12;
  ex->wr_flags = IBV_SEND_SIGNALED;
  ibv_wr_rdma_read(ex, program.mr->rkey, reinterpret_cast<std::uint64_t>(&program.bytes[2001]));
  const ibv_sge into = program.sge(3000, 4);
  ibv_wr_set_sge(ex, into.lkey, into.addr, into.length);
  ASSERT_EQ(ibv_wr_complete(ex), 0);
  const auto done = program.poll(3);
  ASSERT_EQ(done.size(), 3u);
  EXPECT_EQ(done[0].imm_data, 0x01020304u);
  EXPECT_EQ(done[0].byte_len, 4u);
  EXPECT_EQ(done[1].opcode, IBV_WC_RECV_RDMA_WITH_IMM);
  EXPECT_EQ(done[2].wr_id, 12u);
  EXPECT_EQ(std::memcmp(&program.bytes[3000], &word, 4), 0);
}

// Atomics by both ways: the operands reach the other side, what stood there comes back.
TEST_F(WorkRequest, AtomicsBothWays) {
  make();
  std::uint64_t words[3] = {40, 0, 0};
  ibv_mr* mr = ibv_reg_mr(program.pd, words, sizeof words,
                          IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_ATOMIC);
  ASSERT_NE(mr, nullptr);
  ibv_sge into{reinterpret_cast<std::uint64_t>(&words[1]), 8, mr->lkey};
  ibv_send_wr wr{};
  wr.sg_list = &into;
  wr.num_sge = 1;
  wr.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.wr.atomic.remote_addr = reinterpret_cast<std::uint64_t>(&words[0]);
  wr.wr.atomic.rkey = mr->rkey;
  wr.wr.atomic.compare_add = 2;
  ibv_send_wr* bad = nullptr;
  ASSERT_EQ(ibv_post_send(from, &wr, &bad), 0);
  EXPECT_EQ(program.poll(1)[0].opcode, IBV_WC_FETCH_ADD);
  EXPECT_EQ(words[0], 42u);
  EXPECT_EQ(words[1], 40u);
  ibv_qp_ex* ex = ibv_qp_to_qp_ex(from);
  ibv_wr_start(ex);
  ex->wr_flags = IBV_SEND_SIGNALED;
  ibv_wr_atomic_cmp_swp(ex, mr->rkey, wr.wr.atomic.remote_addr, 42, 7);
  ibv_wr_set_sge(ex, mr->lkey, reinterpret_cast<std::uint64_t>(&words[2]), 8);
  ASSERT_EQ(ibv_wr_complete(ex), 0);
  EXPECT_EQ(program.poll(1)[0].opcode, IBV_WC_COMP_SWAP);
  EXPECT_EQ(words[0], 7u);
  EXPECT_EQ(words[2], 42u);
  EXPECT_EQ(ibv_dereg_mr(mr), 0);
}

// Device memory is reached by copies and by offsets, within its bounds and on whole words.
TEST_F(WorkRequest, DeviceMemory) {
  make();
  ibv_alloc_dm_attr attributes{100, 0, 0};
  ibv_dm* dm = ibv_alloc_dm(program.context, &attributes);
  ASSERT_NE(dm, nullptr);
  const char text[] = "kept by the device.";  // whole words
  ASSERT_EQ(ibv_memcpy_to_dm(dm, 40, text, sizeof text), 0);
  EXPECT_EQ(ibv_memcpy_to_dm(dm, 92, text, sizeof text), EINVAL);
  EXPECT_EQ(ibv_memcpy_to_dm(dm, 2, text, sizeof text), EINVAL);
  constexpr unsigned kRights =
      IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_ZERO_BASED;
  EXPECT_EQ(ibv_reg_dm_mr(program.pd, dm, 2, 8, kRights), nullptr);
  EXPECT_EQ(ibv_reg_dm_mr(program.pd, dm, 40, 61, kRights), nullptr);
  EXPECT_EQ(ibv_reg_dm_mr(program.pd, dm, 0, 8, IBV_ACCESS_LOCAL_WRITE), nullptr);
  ibv_mr* mr = ibv_reg_dm_mr(program.pd, dm, 40, 60, kRights);
  ASSERT_NE(mr, nullptr);
  ibv_sge into = program.sge(0, sizeof text);
  ibv_send_wr wr{};
  wr.sg_list = &into;
  wr.num_sge = 1;
  wr.opcode = IBV_WR_RDMA_READ;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.wr.rdma = {0, mr->rkey};
  ibv_send_wr* bad = nullptr;
  ASSERT_EQ(ibv_post_send(from, &wr, &bad), 0);
  EXPECT_EQ(program.poll(1)[0].status, IBV_WC_SUCCESS);
  EXPECT_EQ(std::memcmp(program.bytes.data(), text, sizeof text), 0);
  EXPECT_EQ(ibv_free_dm(dm), EBUSY);
  EXPECT_EQ(ibv_dereg_mr(mr), 0);
  EXPECT_EQ(ibv_free_dm(dm), 0);
}

// What others are made of stays until they have gone.
TEST_F(WorkRequest, ThreadDomainsAreHeldByTheirParents) {
  make();
  ibv_td_init_attr thread{};
  ibv_td* td = ibv_alloc_td(program.context, &thread);
  ASSERT_NE(td, nullptr);
  ibv_parent_domain_init_attr attributes{};
  attributes.pd = program.pd;
  attributes.td = td;
  ibv_pd* parent = ibv_alloc_parent_domain(program.context, &attributes);
  ASSERT_NE(parent, nullptr);
  EXPECT_EQ(ibv_dealloc_td(td), EBUSY);
  EXPECT_EQ(ibv_dealloc_pd(parent), 0);
  EXPECT_EQ(ibv_dealloc_td(td), 0);
}

// Arming tells of completions that no event told of, whenever they came, and of no others: programs
// arm before they poll as well as after.
TEST_F(WorkRequest, ArmingTellsOnce) {
  make();
  const hca::CqPage& page = hca::to_cq(program.cq)->page();
  const auto complete = [&](std::uint32_t tail) {
    ASSERT_EQ(program.receive(to, 1), 0);
    ASSERT_EQ(program.send(from, 2), 0);
    while (page.tail.load() != tail) ::sched_yield();
  };
  const auto told = [&] {
    pollfd wait{program.channel->fd, POLLIN, 0};
    return ::poll(&wait, 1, 0) == 1;
  };
  ibv_cq* cq = nullptr;
  void* context = nullptr;
  complete(2);  // nobody is armed
  EXPECT_FALSE(told());
  ASSERT_EQ(ibv_req_notify_cq(program.cq, 0), 0);
  ASSERT_TRUE(told());
  ASSERT_EQ(ibv_get_cq_event(program.channel, &cq, &context), 0);
  ASSERT_EQ(ibv_req_notify_cq(program.cq, 0), 0);
  EXPECT_FALSE(told());  // they are not polled yet, but known
  complete(4);
  ASSERT_EQ(ibv_get_cq_event(program.channel, &cq, &context), 0);  // by hcad
  EXPECT_EQ(program.poll(4).size(), 4u);
  ASSERT_EQ(ibv_req_notify_cq(program.cq, 0), 0);
  EXPECT_FALSE(told());
  ibv_ack_cq_events(program.cq, 2);
}

// One bad request spoils the list: nothing of it is posted. Abort takes back too.
TEST_F(WorkRequest, ExtendedListIsAllOrNothing) {
  make();
  ibv_qp_ex* ex = ibv_qp_to_qp_ex(from);
  std::vector<std::uint8_t> much(1000);
  ibv_wr_start(ex);
  ibv_wr_send(ex);
  ibv_wr_send(ex);
  ibv_wr_set_inline_data(ex, much.data(), much.size());
  EXPECT_EQ(ibv_wr_complete(ex), EINVAL);
  ibv_wr_start(ex);
  ibv_wr_send(ex);
  ibv_wr_abort(ex);
  EXPECT_EQ(hca::to_qp(from)->page().sq_tail.load(), 0u);
  ibv_wr_start(ex);
  for (int i = 0; i < 17; ++i) ibv_wr_send(ex);  // one more than there are slots
  EXPECT_EQ(ibv_wr_complete(ex), ENOMEM);
  EXPECT_EQ(hca::to_qp(from)->sq_tail, 0u);
}

TEST_F(WorkRequest, RefusedAtThePost) {
  make();
  ibv_sge pieces[5] = {};
  ibv_send_wr wr{};
  ibv_send_wr* bad = nullptr;
  wr.sg_list = pieces;
  wr.opcode = IBV_WR_SEND;
  wr.num_sge = 5;  // four were granted
  EXPECT_EQ(ibv_post_send(from, &wr, &bad), EINVAL);
  EXPECT_EQ(bad, &wr);
  wr.num_sge = -1;
  EXPECT_EQ(ibv_post_send(from, &wr, &bad), EINVAL);
  wr.num_sge = 1;
  pieces[0] = program.sge(0, 65);
  wr.send_flags = IBV_SEND_INLINE;  // 64 were granted
  EXPECT_EQ(ibv_post_send(from, &wr, &bad), EINVAL);
  wr.send_flags = 0;
  wr.opcode = IBV_WR_TSO;
  EXPECT_EQ(ibv_post_send(from, &wr, &bad), EINVAL);
  ibv_recv_wr receive{};
  ibv_recv_wr* bad_receive = nullptr;
  receive.num_sge = 5;
  receive.sg_list = pieces;
  EXPECT_EQ(ibv_post_recv(from, &receive, &bad_receive), EINVAL);
  for (std::uint64_t i = 0; i < 16; ++i) ASSERT_EQ(program.receive(from, i), 0);
  EXPECT_EQ(program.receive(from, 16), ENOMEM);
}

// Before RTS nothing may be sent, before INIT nothing received (IBA table 91).
TEST_F(WorkRequest, NoLongerThanTheDeviceSays) {
  make();
  ibv_port_attr port{};
  ASSERT_EQ(ibv_query_port(program.context, 1, &port), 0);
  EXPECT_EQ(port.max_msg_sz, Node::kMessageBytesMax);
  EXPECT_EQ(program.send(from, 1, port.max_msg_sz + 1), EINVAL);
  EXPECT_EQ(program.send(from, 1, port.max_msg_sz), 0);  // not ours, but that is seen later
  EXPECT_EQ(program.poll(1)[0].status, IBV_WC_LOC_PROT_ERR);
}

TEST_F(WorkRequest, RefusedInTheWrongState) {
  ibv_qp* qp = program.make_qp();
  EXPECT_EQ(program.send(qp, 1), EINVAL);
  EXPECT_EQ(program.receive(qp, 1), EINVAL);
  ibv_qp_attr a{};
  a.qp_state = IBV_QPS_INIT;
  a.port_num = 1;
  EXPECT_EQ(ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PORT), EINVAL);  // no access flags
  ASSERT_EQ(
      ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
      0);
  EXPECT_EQ(program.receive(qp, 1), 0);
  EXPECT_EQ(program.send(qp, 1), EINVAL);
}

// Packets sent before a rate is granted must not be credit afterwards: used and granted are counted
// from RESET on both sides.
TEST_F(WorkRequest, CreditsCountFromReset) {
  make();
  hca::Qp& qp = *hca::to_qp(from);
  for (std::uint64_t i = 0; i < 5; ++i) {
    ASSERT_EQ(program.receive(to, i), 0);
    ASSERT_EQ(program.send(from, i, 2000), 0);
    EXPECT_EQ(program.poll(2).size(), 2u);
  }
  const std::uint32_t before = qp.credit_used;
  EXPECT_EQ(before, 5 * ((2000 + qp.page().packet_payload - 1) / qp.page().packet_payload));
  ibv_qp_rate_limit_attr rate{};
  rate.rate_limit = 1000;
  ASSERT_EQ(ibv_modify_qp_rate_limit(from, &rate), 0);
  EXPECT_EQ(flitnet_rejected_by(from), -1);
  ASSERT_EQ(qp.page().credit_limited.load(), 1u);
  const std::uint32_t capacity = qp.page().credit_granted - before;
  EXPECT_GT(capacity, 0u);
  // Exactly C_i packets may be posted while none has been injected; here they are at once, so the
  // page is what tells: after all is quiet the same C_i is free again.
  ASSERT_EQ(program.receive(to, 9), 0);
  ASSERT_EQ(program.send(from, 9, 2000), 0);
  EXPECT_EQ(program.poll(2).size(), 2u);
  EXPECT_EQ(qp.page().credit_granted - qp.credit_used, capacity);
  qp.page().credit_granted.store(qp.credit_used + 1);  // one packet's worth
  EXPECT_EQ(program.send(from, 10, 2000), ENOMEM);
  EXPECT_EQ(qp.credit_used, qp.page().credit_granted - 1);
}

// The launch time that was set belongs to the next request alone.
TEST_F(WorkRequest, LaunchTime) {
  make();
  ASSERT_EQ(flitnet_set_launch(from, 1, 33), 0);  // long past: leaves at once
  ASSERT_EQ(program.send(from, 1), 0);
  ASSERT_EQ(program.send(from, 2), 0);
  EXPECT_EQ(slot(0).launch_ns, 1u);
  EXPECT_EQ(slot(0).launch_span_ns, 33u);
  EXPECT_EQ(slot(1).launch_ns, 0u);
  EXPECT_GT(flitnet_now(program.context), 0u);
  EXPECT_EQ(flitnet_set_launch(nullptr, 1, 1), EINVAL);
}

TEST_F(WorkRequest, ObjectsRefuse) {
  EXPECT_EQ(ibv_create_cq(program.context, 0, nullptr, nullptr, 0), nullptr);
  EXPECT_EQ(ibv_create_cq(program.context, 16, nullptr, nullptr, 1), nullptr);
  EXPECT_EQ(ibv_create_cq(program.context, 1 << 30, nullptr, nullptr, 0), nullptr);
  EXPECT_EQ(ibv_reg_mr(program.pd, program.bytes.data(), 16, IBV_ACCESS_REMOTE_WRITE), nullptr);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(ibv_reg_mr(program.pd, reinterpret_cast<void*>(8), 16, 0), nullptr);
  EXPECT_EQ(errno, EFAULT);
  errno = 0;
  EXPECT_EQ(ibv_dealloc_pd(program.pd), EBUSY);
  EXPECT_EQ(errno, EBUSY);
  make();
  EXPECT_EQ(ibv_destroy_cq(program.cq), EBUSY);
  EXPECT_EQ(ibv_destroy_comp_channel(program.channel), EBUSY);
  ibv_qp_init_attr init{};
  init.send_cq = init.recv_cq = program.cq;
  init.qp_type = IBV_QPT_RAW_PACKET;
  EXPECT_EQ(ibv_create_qp(program.pd, &init), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
}

// Of a QP without receives of its own what is said of them is ignored, however much it is.
TEST_F(WorkRequest, CapacitiesOfReceivesAreThoseOfItsOwn) {
  ibv_srq_init_attr shared{};
  shared.attr = {16, 1, 0};
  ibv_srq* const srq = ibv_create_srq(program.pd, &shared);
  ASSERT_NE(srq, nullptr);
  for (const ibv_qp_type type : {IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD, IBV_QPT_XRC_SEND}) {
    const bool receives = type != IBV_QPT_XRC_SEND;
    ibv_qp_init_attr init{};
    init.send_cq = init.recv_cq = program.cq;
    init.cap = {16, hca::kMaxQpWr + 1, 1, hca::kMaxSge + 1, 0};
    init.qp_type = type;
    if (receives) {
      EXPECT_EQ(ibv_create_qp(program.pd, &init), nullptr) << type;
      EXPECT_EQ(errno, EINVAL);
      init.srq = srq;
    }
    ibv_qp* const qp = ibv_create_qp(program.pd, &init);
    ASSERT_NE(qp, nullptr) << type;
    EXPECT_EQ(init.cap.max_recv_wr, 0U);
    EXPECT_LE(init.cap.max_recv_sge, hca::kMaxSge);
    EXPECT_EQ(ibv_destroy_qp(qp), 0);
    init.cap.max_send_wr = hca::kMaxQpWr + 1;
    EXPECT_EQ(ibv_create_qp(program.pd, &init), nullptr) << "that of its sends counts";
  }
  EXPECT_EQ(ibv_destroy_srq(srq), 0);
}

// Unconsumed completions survive a resize, and too small a CQ is refused.
TEST_F(WorkRequest, ResizeKeepsCompletions) {
  make();
  for (std::uint64_t i = 0; i < 6; ++i) {
    ASSERT_EQ(program.receive(to, 100 + i), 0);
    ASSERT_EQ(program.send(from, i, 8, i == 5 ? IBV_SEND_SIGNALED : 0), 0);
  }
  ibv_wc first{};
  while (ibv_poll_cq(program.cq, 1, &first) == 0) {
  }
  EXPECT_EQ(first.wr_id, 100u);
  while (hca::to_cq(program.cq)->page().tail.load() != 7) ::sched_yield();
  EXPECT_EQ(ibv_resize_cq(program.cq, 4), EINVAL);
  ASSERT_EQ(ibv_resize_cq(program.cq, 256), 0);
  EXPECT_EQ(program.cq->cqe, 256);
  std::uint64_t next = 101;
  for (const ibv_wc& wc : program.poll(6)) {
    EXPECT_EQ(wc.wr_id, wc.opcode == IBV_WC_SEND ? 5 : next++);
  }
  EXPECT_EQ(next, 106u);
}

// What is posted may yet complete there: where only that stands against it, nothing is done.
TEST_F(WorkRequest, ResizeKeepsRoomForWhatIsPosted) {
  make();
  for (std::uint64_t i = 0; i < 6; ++i) ASSERT_EQ(program.send(from, i), 0);  // nobody receives
  EXPECT_EQ(program.cq->cqe, 64);
  EXPECT_EQ(ibv_resize_cq(program.cq, 4), 0);
  EXPECT_EQ(program.cq->cqe, 64);
  EXPECT_EQ(ibv_resize_cq(program.cq, 8), 0);
  EXPECT_EQ(program.cq->cqe, 8);
  EXPECT_EQ(ibv_resize_cq(program.cq, 4), 0);
  EXPECT_EQ(program.cq->cqe, 8);
  const hca::CqPage& page = hca::to_cq(program.cq)->page();
  for (std::uint64_t i = 0; i < 3; ++i) ASSERT_EQ(program.receive(to, 100 + i), 0);
  while (page.tail.load() != 6) ::sched_yield();
  EXPECT_EQ(ibv_resize_cq(program.cq, 4), EINVAL) << "what waits has no room there";
  EXPECT_EQ(program.poll(6).size(), 6U);
  for (std::uint64_t i = 3; i < 6; ++i) ASSERT_EQ(program.receive(to, 100 + i), 0);
  EXPECT_EQ(program.poll(6).size(), 6U);
  EXPECT_EQ(ibv_resize_cq(program.cq, 4), 0);
  EXPECT_EQ(program.cq->cqe, 4);
}

// Re-registration: another place, other rights; old keys die.
TEST_F(WorkRequest, ReregisterChangesKeys) {
  make();
  std::vector<std::uint8_t> other(4096, 9);
  const std::uint32_t old = program.mr->rkey;
  ibv_mr* mr = ibv_reg_mr(program.pd, other.data(), 100, 0);
  ASSERT_NE(mr, nullptr);
  const std::uint32_t key = mr->lkey;
  ASSERT_EQ(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION | IBV_REREG_MR_CHANGE_ACCESS, nullptr,
                         other.data(), other.size(), Program::kAccess),
            0);
  EXPECT_NE(mr->lkey, key);
  EXPECT_EQ(mr->length, other.size());
  EXPECT_EQ(ibv_rereg_mr(mr, 0, nullptr, nullptr, 0, 0), IBV_REREG_MR_ERR_INPUT);
  EXPECT_EQ(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, other.data(), 0, 0),
            IBV_REREG_MR_ERR_INPUT);
  ibv_sge piece = program.sge(0, 8);
  ibv_send_wr wr{};
  wr.sg_list = &piece;
  wr.num_sge = 1;
  wr.opcode = IBV_WR_RDMA_WRITE;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.wr.rdma = {reinterpret_cast<std::uint64_t>(other.data()) + 4000, mr->rkey};
  ibv_send_wr* bad = nullptr;
  ASSERT_EQ(ibv_post_send(from, &wr, &bad), 0);
  EXPECT_EQ(program.poll(1)[0].status, IBV_WC_SUCCESS);
  EXPECT_EQ(other[4000], 0);
  wr.wr.rdma.rkey = key;
  ASSERT_EQ(ibv_post_send(from, &wr, &bad), 0);
  EXPECT_EQ(program.poll(1)[0].status, IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(program.mr->rkey, old);
  EXPECT_EQ(ibv_dereg_mr(mr), 0);
}

}  // namespace
