// What the verbs programs of tests/abi share: one device, and two QPs of one program that are
// joined. They use the headers and the library of rdma-core alone.
#pragma once

#include <infiniband/verbs.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace probe {

[[noreturn]] inline void fail(const char* what, int error = errno) {
  std::printf("%s: %s (%d)\n", what, std::strerror(error), error);
  std::exit(1);
}

struct Probe {
  ibv_context* context = nullptr;
  ibv_pd* pd = nullptr;
  ibv_cq* cq = nullptr;
  ibv_mr* mr = nullptr;
  ibv_port_attr port{};
  std::vector<std::uint8_t> bytes = std::vector<std::uint8_t>(1 << 16);

  Probe() {
    if (ibv_fork_init() != 0) fail("ibv_fork_init");
    ibv_device** list = ibv_get_device_list(nullptr);
    if (list == nullptr || list[0] == nullptr) fail("no device");
    context = ibv_open_device(list[0]);
    ibv_free_device_list(list);
    if (context == nullptr || ibv_query_port(context, 1, &port) != 0) fail("open");
    pd = ibv_alloc_pd(context);
    cq = ibv_create_cq(context, 16, nullptr, nullptr, 0);
    mr = ibv_reg_mr(pd, bytes.data(), bytes.size(), kAccess);
    if (pd == nullptr || cq == nullptr || mr == nullptr) fail("objects");
  }

  ibv_qp* make_qp() const {
    ibv_qp_init_attr_ex init{};
    init.send_cq = init.recv_cq = cq;
    init.cap = {8, 8, 2, 2, 64};
    init.qp_type = IBV_QPT_RC;
    init.pd = pd;
    init.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    init.send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_SEND |
                          IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_WRITE;
    ibv_qp* qp = ibv_create_qp_ex(context, &init);
    if (qp == nullptr) fail("ibv_create_qp_ex");
    return qp;
  }

  static void connect(ibv_qp* qp, std::uint32_t peer, std::uint16_t lid,
                      std::uint8_t rnr_retry = 7) {
    ibv_qp_attr a{};
    a.qp_state = IBV_QPS_INIT;
    a.port_num = 1;
    a.qp_access_flags = kAccess & ~IBV_ACCESS_LOCAL_WRITE;
    int error =
        ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
    if (error != 0) fail("INIT", error);
    a.qp_state = IBV_QPS_RTR;
    a.path_mtu = IBV_MTU_1024;
    a.dest_qp_num = peer;
    a.max_dest_rd_atomic = a.max_rd_atomic = 1;
    a.ah_attr.dlid = lid;
    a.ah_attr.sl = 1;  // real time: rates are for it
    a.ah_attr.port_num = 1;
    error = ibv_modify_qp(qp, &a,
                          IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                              IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
    if (error != 0) fail("RTR", error);
    a.qp_state = IBV_QPS_RTS;
    a.timeout = 14;
    a.retry_cnt = 7;
    a.rnr_retry = rnr_retry;
    error = ibv_modify_qp(qp, &a,
                          IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                              IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
    if (error != 0) fail("RTS", error);
  }

  ibv_wc poll() const {
    ibv_wc wc{};
    int got = 0;
    while (got == 0) got = ibv_poll_cq(cq, 1, &wc);
    if (got < 0) fail("ibv_poll_cq", -got);
    return wc;
  }
  void expect(ibv_wc_status status) const {
    const ibv_wc wc = poll();
    if (wc.status == status) return;
    std::printf("completion: %s\n", ibv_wc_status_str(wc.status));
    std::exit(1);
  }
  // Writes 8 bytes of ours to `address` by the ibv_wr_* calls.
  void write(ibv_qp* qp, std::uint32_t rkey, const void* address) const {
    ibv_qp_ex* ex = ibv_qp_to_qp_ex(qp);
    ibv_wr_start(ex);
    ex->wr_id = 1;
    ex->wr_flags = IBV_SEND_SIGNALED;
    ibv_wr_rdma_write(ex, rkey, reinterpret_cast<std::uint64_t>(address));
    ibv_wr_set_sge(ex, mr->lkey, reinterpret_cast<std::uint64_t>(bytes.data()), 8);
    if (const int error = ibv_wr_complete(ex)) fail("ibv_wr_complete", error);
  }

  static constexpr int kAccess =
      IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
};

// Two QPs of one program, joined.
struct Joined : Probe {
  ibv_qp* from = make_qp();
  ibv_qp* to = make_qp();
  Joined() {
    connect(from, to->qp_num, port.lid);
    connect(to, from->qp_num, port.lid);
  }
};

}  // namespace probe
