#include "tests/bench/verbs/endpoint.h"

#include <dlfcn.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "emu/base/launch_ext.h"

namespace bench {

namespace {
template <class Function>
Function* extension(const char* name) {
  auto* found = reinterpret_cast<Function*>(::dlsym(RTLD_DEFAULT, name));
  if (found == nullptr) stop("not on a node: start it by ./flitnet bench verbs");
  return found;
}
}  // namespace

void stop(const char* what) {
  std::fprintf(stderr, "verbs_bench: %s (%s)\n", what, std::strerror(errno));
  std::exit(1);
}

Endpoint::Endpoint(int pair) {
  int count = 0;
  ibv_device** devices = ibv_get_device_list(&count);
  if (count == 0) stop("no device");
  context_ = ibv_open_device(devices[0]);
  ibv_free_device_list(devices);
  if (context_ == nullptr) stop("cannot open the device");
  pd_ = ibv_alloc_pd(context_);
  ibv_cq_init_attr_ex wanted{};
  wanted.cqe = 2 * kDepth;
  wanted.wc_flags = IBV_WC_EX_WITH_COMPLETION_TIMESTAMP;
  cq_ = ibv_create_cq_ex(context_, &wanted);
  if (pd_ == nullptr || cq_ == nullptr) stop("no PD or CQ");
  mr_ = ibv_reg_mr(pd_, message_.data(), message_.size(), IBV_ACCESS_LOCAL_WRITE);
  ibv_qp_init_attr init{};
  init.send_cq = init.recv_cq = ibv_cq_ex_to_cq(cq_);
  init.cap = {kDepth, kDepth, 1, 1, kMessageBytes};
  init.qp_type = IBV_QPT_RC;
  qp_ = ibv_create_qp(pd_, &init);
  if (mr_ == nullptr || qp_ == nullptr) stop("no MR or QP");
  connect(pair);
}

void Endpoint::modify(ibv_qp_attr& attributes, int mask) {
  errno = ibv_modify_qp(qp_, &attributes, mask);
  if (errno != 0) stop("ibv_modify_qp");
}

void Endpoint::connect(int pair) {
  struct Address {
    std::uint32_t qpn;
    std::uint16_t lid;
    std::uint16_t reserved;
  };
  ibv_port_attr port{};
  if (ibv_query_port(context_, 1, &port) != 0) stop("ibv_query_port");
  ibv_qp_attr a{};
  a.qp_state = IBV_QPS_INIT;
  a.port_num = 1;
  modify(a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
  for (std::uint32_t i = 0; i < kDepth; ++i) receive();
  const Address mine{qp_->qp_num, port.lid, 0};
  Address peer{};
  if (::send(pair, &mine, sizeof mine, MSG_NOSIGNAL) != sizeof mine ||
      ::recv(pair, &peer, sizeof peer, MSG_WAITALL) != sizeof peer) {
    stop("the other end is gone");
  }
  a.qp_state = IBV_QPS_RTR;
  a.path_mtu = IBV_MTU_2048;
  a.dest_qp_num = peer.qpn;
  a.max_dest_rd_atomic = 1;
  a.min_rnr_timer = 12;
  a.ah_attr.dlid = peer.lid;
  a.ah_attr.port_num = 1;
  modify(a, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
  a.qp_state = IBV_QPS_RTS;
  a.timeout = 18;
  a.retry_cnt = 7;
  a.rnr_retry = 7;
  a.max_rd_atomic = 1;
  modify(a, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                IBV_QP_MAX_QP_RD_ATOMIC);
}

void Endpoint::send() {
  ibv_sge piece{reinterpret_cast<std::uint64_t>(message_.data()), kMessageBytes, mr_->lkey};
  ibv_send_wr wr{};
  wr.sg_list = &piece;
  wr.num_sge = 1;
  wr.opcode = IBV_WR_SEND;
  wr.send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE;
  ibv_send_wr* bad = nullptr;
  errno = ibv_post_send(qp_, &wr, &bad);
  if (errno != 0) stop("ibv_post_send");
}

void Endpoint::send_at(std::uint64_t launch_ns) {
  static auto* const set_launch = extension<FlitnetSetLaunch>(kFlitnetSetLaunchName);
  set_launch(qp_, launch_ns, 0);
  send();
}

void Endpoint::receive() {
  ibv_sge piece{reinterpret_cast<std::uint64_t>(message_.data()), kMessageBytes, mr_->lkey};
  ibv_recv_wr wr{0, nullptr, &piece, 1};
  ibv_recv_wr* bad = nullptr;
  errno = ibv_post_recv(qp_, &wr, &bad);
  if (errno != 0) stop("ibv_post_recv");
}

Completion Endpoint::wait() {
  ibv_poll_cq_attr none{};
  int status = ENOENT;
  while (status == ENOENT) status = ibv_start_poll(cq_, &none);
  errno = status;
  if (status != 0) stop("ibv_start_poll");
  if (cq_->status != IBV_WC_SUCCESS) stop(ibv_wc_status_str(cq_->status));
  const Completion done{ibv_wc_read_opcode(cq_) == IBV_WC_RECV, ibv_wc_read_completion_ts(cq_)};
  ibv_end_poll(cq_);
  return done;
}

std::uint64_t Endpoint::now() const {
  static auto* const emulated_now = extension<FlitnetNow>(kFlitnetNowName);
  return emulated_now(context_);
}

}  // namespace bench
