#include "tests/bench/verbs/endpoint.h"

#include <dlfcn.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "emu/base/launch_ext.h"
#include "tests/shared_memory.h"

namespace bench {

namespace {
template <class Function>
Function* extension(const char* name) {
  auto* found = reinterpret_cast<Function*>(::dlsym(RTLD_DEFAULT, name));
  if (found == nullptr) stop("not on a node: start it by ./flitnet bench verbs");
  return found;
}

char* shared_memory(std::size_t bytes) {
  void* data = test::shared_memory("verbs_bench", bytes);
  if (data == nullptr) stop("shared memory");
  return static_cast<char*>(data);
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
  channel_ = ibv_create_comp_channel(context_);
  wanted.channel = channel_;
  wanted.cqe = 2 * kDepth;
  wanted.wc_flags = IBV_WC_EX_WITH_COMPLETION_TIMESTAMP;
  cq_ = ibv_create_cq_ex(context_, &wanted);
  if (pd_ == nullptr || cq_ == nullptr) stop("no PD or CQ");
  mr_ = ibv_reg_mr(pd_, message_.data(), message_.size(), IBV_ACCESS_LOCAL_WRITE);
  block(Memory::plain).data = block_.data();
  block(Memory::shared).data = shared_memory(kBlockBytes);
  for (Block& block : blocks_) {
    block.mr =
        ibv_reg_mr(pd_, block.data, kBlockBytes, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    if (block.mr == nullptr) stop("ibv_reg_mr");
  }
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
    std::array<RemoteBlock, 2> blocks;
  };
  ibv_port_attr port{};
  if (ibv_query_port(context_, 1, &port) != 0) stop("ibv_query_port");
  ibv_qp_attr a{};
  a.qp_state = IBV_QPS_INIT;
  a.port_num = 1;
  a.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
  modify(a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
  for (std::uint32_t i = 0; i < kDepth; ++i) receive();
  Address mine{qp_->qp_num, port.lid, 0, {}};
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    mine.blocks[i] = {reinterpret_cast<std::uint64_t>(blocks_[i].data), blocks_[i].mr->rkey};
  }
  Address peer{};
  if (::send(pair, &mine, sizeof mine, MSG_NOSIGNAL) != sizeof mine ||
      ::recv(pair, &peer, sizeof peer, MSG_WAITALL) != sizeof peer) {
    stop("the other end is gone");
  }
  for (std::size_t i = 0; i < blocks_.size(); ++i) blocks_[i].remote = peer.blocks[i];
  a.qp_state = IBV_QPS_RTR;
  a.path_mtu = port.active_mtu;
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
  post(wr);
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

void Endpoint::post(ibv_send_wr& first) {
  ibv_send_wr* bad = nullptr;
  errno = ibv_post_send(qp_, &first, &bad);
  if (errno != 0) stop("ibv_post_send");
  ++completions_due_;  // of each call that posts, the last request is signaled
}

void Endpoint::write_list(std::uint32_t bytes, std::uint32_t count, Memory memory) {
  const Block& from = block(memory);
  ibv_sge piece{reinterpret_cast<std::uint64_t>(from.data), bytes, from.mr->lkey};
  std::array<ibv_send_wr, kListRequests> list{};
  for (std::uint32_t i = 0; i < count; ++i) {
    ibv_send_wr& wr = list[i];
    wr.next = i + 1 < count ? &list[i + 1] : nullptr;
    wr.sg_list = &piece;
    wr.num_sge = 1;
    wr.opcode = IBV_WR_RDMA_WRITE;
    wr.send_flags = bytes <= kMessageBytes ? unsigned{IBV_SEND_INLINE} : 0U;
    if (wr.next == nullptr) wr.send_flags |= IBV_SEND_SIGNALED;
    wr.wr.rdma.remote_addr = from.remote.address;
    wr.wr.rdma.rkey = static_cast<std::uint32_t>(from.remote.key);
  }
  post(list[0]);
}

void Endpoint::write_with_immediate() {
  const Block& from = block(Memory::plain);
  ibv_sge piece{reinterpret_cast<std::uint64_t>(from.data), kMessageBytes, from.mr->lkey};
  ibv_send_wr wr{};
  wr.sg_list = &piece;
  wr.num_sge = 1;
  wr.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
  wr.send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE;
  wr.wr.rdma.remote_addr = from.remote.address;
  wr.wr.rdma.rkey = static_cast<std::uint32_t>(from.remote.key);
  post(wr);
}

bool Endpoint::poll(Completion& done) {
  ibv_poll_cq_attr none{};
  const int status = ibv_start_poll(cq_, &none);
  if (status == ENOENT) return false;
  errno = status;
  if (status != 0) stop("ibv_start_poll");
  if (cq_->status != IBV_WC_SUCCESS) stop(ibv_wc_status_str(cq_->status));
  const bool is_receive = (ibv_wc_read_opcode(cq_) & IBV_WC_RECV) != 0;
  done = {is_receive, ibv_wc_read_completion_ts(cq_)};
  ibv_end_poll(cq_);
  if (!is_receive) --completions_due_;
  return true;
}

void Endpoint::drain() {
  while (completions_due_ > 0) (void)wait();
}

Completion Endpoint::wait() {
  Completion done;
  while (!poll(done)) {
  }
  return done;
}

Completion Endpoint::wait_asleep() {
  Completion done;
  while (true) {
    ibv_req_notify_cq(ibv_cq_ex_to_cq(cq_), 0);
    if (poll(done)) return done;
    ibv_cq* cq = nullptr;
    void* user = nullptr;
    if (ibv_get_cq_event(channel_, &cq, &user) != 0) stop("ibv_get_cq_event");
    ibv_ack_cq_events(cq, 1);
    if (poll(done)) return done;
  }
}

std::uint64_t Endpoint::now() const {
  static auto* const emulated_now = extension<FlitnetNow>(kFlitnetNowName);
  return emulated_now(context_);
}

}  // namespace bench
