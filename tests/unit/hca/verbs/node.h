// A node inside the test: hcad's control socket and a Host on a thread of its own, so that the
// library is tested against the real other side without processes or a fabric. QPs talk to one
// another within the node. kill() ends it as SIGKILL ends an hcad: every descriptor closes.
#pragma once

#include <gtest/gtest.h>
#include <infiniband/verbs.h>
#include <sched.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "emu/ring/region.h"
#include "hca/abi/control.h"
#include "hca/abi/node.h"
#include "hca/daemon/control.h"
#include "hca/host/host.h"

namespace test {

// Of a thread of this process, as the kernel says it: S sleeps.
inline char state_of(pid_t thread) {
  std::ifstream file("/proc/self/task/" + std::to_string(thread) + "/stat");
  std::string text;
  std::getline(file, text);
  const auto name_end = text.rfind(')');
  return name_end == text.npos ? '?' : text[name_end + 2];
}

class Node {
 public:
  Node() : page_(std::move(*emu::Region::create("test-node", sizeof(hca::NodePage)))) {
    std::signal(SIGPIPE, SIG_IGN);  // as hcad does
    char path[] = "/tmp/flitnet-verbs-XXXXXX";
    dir_ = ::mkdtemp(path);
    live(1);
    ::setenv(hca::kNodeSocketVariable, (dir_ + "/hcad.sock").c_str(), 1);
  }
  ~Node() {
    kill();
    std::filesystem::remove_all(dir_);
  }
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;

  static constexpr std::uint32_t kMessageBytesMax = 1u << 28;
  static constexpr std::uint32_t kCqsMax = 256;  // few, so that a test can have them all

  std::string socket() const { return dir_ + "/hcad.sock"; }

  void kill() {
    if (!thread_.joinable()) return;
    stop_ = true;
    thread_.join();
    host_.reset();
    control_.reset();
  }
  // While the caller owns it hcad does nothing.
  std::unique_lock<std::mutex> busy() { return std::unique_lock(turn_); }
  // Killed and started anew, with a page of its own and in it another LID.
  void restart(std::uint16_t lid) {
    kill();
    page_ = std::move(*emu::Region::create("test-node", sizeof(hca::NodePage)));
    live(lid);
  }

 private:
  void live(std::uint16_t lid) {
    fill_page(lid);
    hca::HostOptions options;
    options.nodes = 1;
    options.cqs_max = kCqsMax;
    options.class_of_sl.fill(emu::TrafficClass::best_effort);
    options.class_of_sl[1] = emu::TrafficClass::real_time;
    control_ = std::move(*hca::Control::open(dir_ + "/hcad.sock", page_, memory_));
    host_ = std::make_unique<hca::Host>(options, memory_, port_, *control_);
    control_->set_host(*host_);
    stop_ = false;
    thread_ = std::thread([this] { loop(); });
  }
  struct NoPort : hca::PacketPort {  // there is no other node
    bool reserve(hca::PacketSlot&) override { return false; }
    void cancel(std::uint16_t) override {}
    void send(std::span<const emu::TxDesc>) override {}
  };

  void fill_page(std::uint16_t lid) {
    auto& page = *reinterpret_cast<hca::NodePage*>(page_.data());
    page.magic = hca::kNodeMagic;
    page.version = hca::kAbiVersion;
    page.node_guid = page.port_guid = 0x0002c90300000001;
    page.gid_prefix = 0xfe80000000000000;
    page.link_bps = 400'000'000;
    page.lid = lid;
    page.pkey = 0xffff;
    page.active_mtu = page.max_mtu = 4;
    page.max_message_bytes = kMessageBytesMax;
    page.vendor_id = 0x02c9;
    page.device_name[0] = 'f';
    page.port_state = 4;
  }
  void loop() {
    emu::Cycle now = 1000;
    while (!stop_) {
      const std::lock_guard lock(turn_);
      now += 100;
      reinterpret_cast<hca::NodePage*>(page_.data())->now_ns.store(now * 80);
      control_->service(now);
      const bool rung = control_->doorbells(now);
      if (host_->advance(now) == 0 && !rung) ::sched_yield();
    }
  }

  std::string dir_;
  emu::Region page_;
  hca::ProcessMemory memory_;
  NoPort port_;
  std::unique_ptr<hca::Control> control_;
  std::unique_ptr<hca::Host> host_;
  std::atomic<bool> stop_{false};
  std::mutex turn_;
  std::thread thread_;
};

// A program with an open device, a protection domain, a CQ with a channel, and memory.
class Program {
 public:
  explicit Program(int cqes = 64) {
    ibv_device** list = ibv_get_device_list(nullptr);
    context = ibv_open_device(list[0]);
    ibv_free_device_list(list);
    pd = ibv_alloc_pd(context);
    channel = ibv_create_comp_channel(context);
    cq = ibv_create_cq(context, cqes, nullptr, channel, 0);
    mr = ibv_reg_mr(pd, bytes.data(), bytes.size(), kAccess);
  }
  ~Program() {
    for (ibv_qp* qp : qps) EXPECT_EQ(ibv_destroy_qp(qp), 0);
    EXPECT_EQ(ibv_dereg_mr(mr), 0);
    EXPECT_EQ(ibv_destroy_cq(cq), 0);
    EXPECT_EQ(ibv_destroy_comp_channel(channel), 0);
    EXPECT_EQ(ibv_dealloc_pd(pd), 0);
    EXPECT_EQ(ibv_close_device(context), 0);
  }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  ibv_qp* make_qp(ibv_qp_type type = IBV_QPT_RC, std::uint64_t ops = 0) {
    ibv_qp_init_attr_ex init{};
    init.send_cq = init.recv_cq = cq;
    init.cap = {16, 16, 4, 4, 64};
    init.qp_type = type;
    init.pd = pd;
    init.comp_mask = IBV_QP_INIT_ATTR_PD;
    if (ops != 0) init.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    init.send_ops_flags = ops;
    ibv_qp* qp = ibv_create_qp_ex(context, &init);
    if (qp != nullptr) qps.push_back(qp);
    return qp;
  }
  // RESET to RTS or RTR, towards `peer` on this node.
  static void connect(ibv_qp* qp, const ibv_qp* peer, std::uint8_t sl = 0,
                      ibv_qp_state last = IBV_QPS_RTS) {
    ibv_qp_attr a{};
    const bool reliable = qp->qp_type == IBV_QPT_RC;
    a.qp_state = IBV_QPS_INIT;
    a.port_num = 1;
    a.qp_access_flags = (kAccess & ~IBV_ACCESS_LOCAL_WRITE) | IBV_ACCESS_REMOTE_ATOMIC;
    if (!reliable) a.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
    ASSERT_EQ(
        ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
        0);
    a.qp_state = IBV_QPS_RTR;
    a.path_mtu = IBV_MTU_1024;
    a.dest_qp_num = peer->qp_num;
    a.max_dest_rd_atomic = a.max_rd_atomic = 4;
    a.min_rnr_timer = 1;
    a.ah_attr.dlid = 1;
    a.ah_attr.sl = sl;
    a.ah_attr.port_num = 1;
    int mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
    if (reliable) mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
    ASSERT_EQ(ibv_modify_qp(qp, &a, mask), 0);
    if (last == IBV_QPS_RTR) return;
    a.qp_state = IBV_QPS_RTS;
    a.timeout = 14;
    a.retry_cnt = a.rnr_retry = 7;
    mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
    if (reliable) {
      mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
    }
    ASSERT_EQ(ibv_modify_qp(qp, &a, mask), 0);
  }

  // Two of them, connected to each other.
  std::pair<ibv_qp*, ibv_qp*> make_pair() {
    ibv_qp* const from = make_qp();
    ibv_qp* const to = make_qp();
    connect(from, to);
    connect(to, from);
    return {from, to};
  }
  ibv_sge sge(std::size_t offset, std::uint32_t length) const {
    return {reinterpret_cast<std::uint64_t>(bytes.data()) + offset, length, mr->lkey};
  }
  int send(ibv_qp* qp, std::uint64_t wr_id, std::uint32_t length = 8,
           unsigned flags = IBV_SEND_SIGNALED) const {
    ibv_sge piece = sge(0, length);
    ibv_send_wr wr{};
    wr.wr_id = wr_id;
    wr.sg_list = &piece;
    wr.num_sge = 1;
    wr.opcode = IBV_WR_SEND;
    wr.send_flags = flags;
    ibv_send_wr* bad = nullptr;
    return ibv_post_send(qp, &wr, &bad);
  }
  int receive(ibv_qp* qp, std::uint64_t wr_id, std::uint32_t length = 4096) const {
    ibv_sge piece = sge(32768, length);
    ibv_recv_wr wr{};
    wr.wr_id = wr_id;
    wr.sg_list = &piece;
    wr.num_sge = 1;
    ibv_recv_wr* bad = nullptr;
    return ibv_post_recv(qp, &wr, &bad);
  }
  // Polls until `count` completions came, or the device says that none will.
  std::vector<ibv_wc> poll(std::size_t count) const {
    std::vector<ibv_wc> done;
    ibv_wc wc;
    while (done.size() < count) {
      const int got = ibv_poll_cq(cq, 1, &wc);
      if (got < 0) break;
      if (got == 1) done.push_back(wc);
    }
    return done;
  }

  static constexpr int kAccess =
      IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
  ibv_context* context;
  ibv_pd* pd;
  ibv_comp_channel* channel;
  ibv_cq* cq;
  ibv_mr* mr;
  std::vector<ibv_qp*> qps;
  std::vector<std::uint8_t> bytes = std::vector<std::uint8_t>(65536);
};

}  // namespace test
