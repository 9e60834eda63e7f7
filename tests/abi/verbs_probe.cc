// A verbs program for tests/apps: what Debian's programs do not call. Built against the headers and
// the library of rdma-core alone. It prints one word for what it found and ends with 0, or says
// what is wrong and ends with 1.
//
// usage: verbs_probe wr | word | resize | rereg | fork | async | twice | rebind | full | late |
//        limits | main | cancel | rate DLID KBPS
#include <fcntl.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <fstream>
#include <string>
#include <thread>

#include "tests/abi/probe.h"

namespace {

using namespace probe;

void wr() {
  Joined p;
  std::memcpy(p.bytes.data(), "by wr_*", 8);
  p.write(p.from, p.mr->rkey, &p.bytes[1000]);
  p.expect(IBV_WC_SUCCESS);
  if (std::memcmp(&p.bytes[1000], "by wr_*", 8) != 0) fail("bytes", 0);
}

// An atomic write: of eight bytes that may be gone when the call returns.
void word() {
  Joined p;
  ibv_device_attr_ex device{};
  if (ibv_query_device_ex(p.context, nullptr, &device) != 0) fail("ibv_query_device_ex");
  if ((device.device_cap_flags_ex >> 40 & 1) == 0) fail("the device says that it has none", 0);
  std::uint8_t* at = &p.bytes[1024];
  at += -reinterpret_cast<std::uintptr_t>(at) % 8;
  const auto write = [&](const std::uint8_t* address) {
    std::uint64_t bytes = 0x0102'0304'0506'0708;
    ibv_qp_ex* ex = ibv_qp_to_qp_ex(p.from);
    ibv_wr_start(ex);
    ex->wr_flags = IBV_SEND_SIGNALED;
    ibv_wr_atomic_write(ex, p.mr->rkey, reinterpret_cast<std::uint64_t>(address), &bytes);
    bytes = 0;
    if (const int error = ibv_wr_complete(ex)) fail("ibv_wr_complete", error);
  };
  write(at);
  const ibv_wc wc = p.poll();
  if (wc.status != IBV_WC_SUCCESS) fail(ibv_wc_status_str(wc.status), 0);
  if (wc.opcode != IBV_WC_ATOMIC_WRITE) fail("opcode of the completion", 0);
  std::uint64_t found = 0;
  std::memcpy(&found, at, sizeof found);
  if (found != 0x0102'0304'0506'0708) fail("bytes", 0);
  ibv_send_wr none{};
  none.opcode = IBV_WR_ATOMIC_WRITE;
  ibv_send_wr* bad = nullptr;
  if (ibv_post_send(p.from, &none, &bad) != EINVAL || bad != &none) fail("posted", 0);
  write(at + 4);
  p.expect(IBV_WC_REM_INV_REQ_ERR);
}

void resize() {
  Joined p;
  for (int i = 0; i < 5; ++i) p.write(p.from, p.mr->rkey, &p.bytes[1000]);
  p.expect(IBV_WC_SUCCESS);
  if (const int error = ibv_resize_cq(p.cq, 500)) fail("ibv_resize_cq", error);
  if (p.cq->cqe < 500) fail("too few", 0);
  for (int i = 0; i < 4; ++i) p.expect(IBV_WC_SUCCESS);
}

void rereg() {
  Joined p;
  const std::uint32_t old = p.mr->rkey;
  std::vector<std::uint8_t> other(4096);
  ibv_mr* mr = ibv_reg_mr(p.pd, &p.bytes[0], 4096, 0);
  if (mr == nullptr) fail("ibv_reg_mr");
  const int error = ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION | IBV_REREG_MR_CHANGE_ACCESS,
                                 nullptr, other.data(), other.size(), Probe::kAccess);
  if (error != 0) fail("ibv_rereg_mr", error);
  p.bytes[0] = 42;
  p.write(p.from, mr->rkey, &other[100]);
  p.expect(IBV_WC_SUCCESS);
  if (other[100] != 42 || old != p.mr->rkey) fail("bytes", 0);
}

// Memory that is written after a fork stays the memory that was registered; the child may not use
// the device of its parent.
void after_fork() {
  Joined p;
  p.bytes[0] = 1;
  const pid_t child = ::fork();
  if (child < 0) fail("fork");
  if (child == 0) {
    p.bytes[0] = 99;  // its own copy
    ibv_wc wc;
    int got = 0;
    while (got == 0) got = ibv_poll_cq(p.cq, 1, &wc);
    std::fflush(stdout);
    ::_exit(got < 0 ? 0 : 1);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  if (status != 0) fail("the child polled its parent's queue", 0);
  p.bytes[0] = 7;  // copied on write by the kernel, were this not the parent
  p.write(p.from, p.mr->rkey, &p.bytes[1000]);
  p.expect(IBV_WC_SUCCESS);
  if (p.bytes[1000] != 7) fail("bytes", 0);
}

// The responder of a forbidden access hears of it.
void async() {
  Joined p;
  p.write(p.from, p.mr->rkey ^ 1, &p.bytes[1000]);
  p.expect(IBV_WC_REM_ACCESS_ERR);
  ibv_async_event event{};
  do {
    if (ibv_get_async_event(p.context, &event) != 0) fail("ibv_get_async_event");
    if (event.element.qp != p.to) fail("another QP", 0);
    ibv_ack_async_event(&event);
  } while (event.event_type == IBV_EVENT_COMM_EST);
  if (event.event_type != IBV_EVENT_QP_ACCESS_ERR) fail(ibv_event_type_str(event.event_type), 0);
  if (ibv_destroy_qp(p.to) != 0) fail("destroy");
}

ibv_qp* make_xrc(ibv_context* context, ibv_qp_init_attr_ex init) {
  ibv_qp* qp = ibv_create_qp_ex(context, &init);
  if (qp == nullptr) fail("ibv_create_qp_ex of XRC");
  return qp;
}

// A receiving QP of XRC that is opened twice more: who still has a handle hears what happens.
void twice() {
  Probe p;
  ibv_xrcd_init_attr of_no_file{};
  of_no_file.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
  of_no_file.fd = -1;
  of_no_file.oflags = O_CREAT;
  ibv_xrcd* domain = ibv_open_xrcd(p.context, &of_no_file);
  if (domain == nullptr) fail("ibv_open_xrcd");
  ibv_qp_init_attr_ex init{};
  init.qp_type = IBV_QPT_XRC_RECV;
  init.comp_mask = IBV_QP_INIT_ATTR_XRCD;
  init.xrcd = domain;
  ibv_qp* made = make_xrc(p.context, init);
  ibv_qp_open_attr wanted{};
  wanted.comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE;
  wanted.qp_num = made->qp_num;
  wanted.xrcd = domain;
  wanted.qp_type = IBV_QPT_XRC_RECV;
  ibv_qp* let_go = ibv_open_qp(p.context, &wanted);
  ibv_qp* opened = ibv_open_qp(p.context, &wanted);
  if (let_go == nullptr || opened == nullptr) fail("ibv_open_qp");
  if (opened->qp_num != made->qp_num) fail("another number", 0);
  if (const int error = ibv_destroy_qp(let_go)) fail("ibv_destroy_qp", error);
  init = {};
  init.qp_type = IBV_QPT_XRC_SEND;
  init.comp_mask = IBV_QP_INIT_ATTR_PD;
  init.pd = p.pd;
  init.send_cq = p.cq;
  init.cap = {1, 0, 1, 0, 0};
  ibv_qp* from = make_xrc(p.context, init);
  Probe::connect(from, made->qp_num, p.port.lid);
  Probe::connect(made, from->qp_num, p.port.lid);
  ibv_send_wr send{};
  send.opcode = IBV_WR_SEND;
  send.send_flags = IBV_SEND_SIGNALED;
  send.qp_type.xrc.remote_srqn = 77;  // which there is not
  ibv_send_wr* bad = nullptr;
  if (const int error = ibv_post_send(from, &send, &bad)) fail("ibv_post_send", error);
  p.expect(IBV_WC_REM_INV_REQ_ERR);
  ibv_async_event event{};
  for (ibv_qp* qp : {made, opened}) {
    if (ibv_get_async_event(p.context, &event) != 0) fail("ibv_get_async_event");
    if (event.event_type != IBV_EVENT_QP_REQ_ERR) fail(ibv_event_type_str(event.event_type), 0);
    if (event.element.qp != qp) fail("another handle", 0);
    ibv_ack_async_event(&event);
  }
  for (ibv_qp* qp : {made, opened, from}) {
    if (const int error = ibv_destroy_qp(qp)) fail("ibv_destroy_qp", error);
  }
  if (const int error = ibv_close_xrcd(domain)) fail("ibv_close_xrcd", error);
}

// A window of type 1 whose bind was flushed is bound by a QP that works.
void rebind() {
  Joined p;
  ibv_mr* mr = ibv_reg_mr(p.pd, p.bytes.data(), 4096, Probe::kAccess | IBV_ACCESS_MW_BIND);
  ibv_mw* window = ibv_alloc_mw(p.pd, IBV_MW_TYPE_1);
  if (mr == nullptr || window == nullptr) fail("ibv_alloc_mw");
  ibv_qp* broken = p.make_qp();
  Probe::connect(broken, p.to->qp_num, p.port.lid);
  ibv_qp_attr a{};
  a.qp_state = IBV_QPS_ERR;
  if (const int error = ibv_modify_qp(broken, &a, IBV_QP_STATE)) fail("ERR", error);
  ibv_mw_bind bind{};
  bind.send_flags = IBV_SEND_SIGNALED;
  bind.bind_info = {mr, reinterpret_cast<std::uint64_t>(&p.bytes[1000]), 8,
                    IBV_ACCESS_REMOTE_WRITE};
  if (const int error = ibv_bind_mw(broken, window, &bind)) fail("ibv_bind_mw in ERR", error);
  p.expect(IBV_WC_WR_FLUSH_ERR);
  for (int round = 0; round < 2; ++round) {  // the second moves it
    if (const int error = ibv_bind_mw(p.to, window, &bind)) fail("ibv_bind_mw", error);
    p.expect(IBV_WC_SUCCESS);
    p.bytes[0] = static_cast<std::uint8_t>(42 + round);
    p.write(p.from, window->rkey, &p.bytes[1000]);
    p.expect(IBV_WC_SUCCESS);
    if (p.bytes[1000] != 42 + round) fail("bytes", 0);
  }
}

// A queue as deep as its CQ: what is polled makes room for as much that is posted, also between
// ibv_start_poll and ibv_end_poll.
void full() {
  Probe p;
  constexpr int kDepth = 16;
  ibv_cq_init_attr_ex wanted{};
  wanted.cqe = kDepth;
  ibv_cq_ex* cq = ibv_create_cq_ex(p.context, &wanted);
  if (cq == nullptr || cq->cqe != kDepth) fail("ibv_create_cq_ex");
  ibv_qp_init_attr init{};
  init.send_cq = init.recv_cq = ibv_cq_ex_to_cq(cq);
  init.cap = {kDepth, 1, 1, 1, 0};
  init.qp_type = IBV_QPT_RC;
  init.sq_sig_all = 1;
  ibv_qp* from = ibv_create_qp(p.pd, &init);
  ibv_qp* to = p.make_qp();
  if (from == nullptr) fail("ibv_create_qp");
  Probe::connect(from, to->qp_num, p.port.lid);
  Probe::connect(to, from->qp_num, p.port.lid);
  ibv_sge sge{reinterpret_cast<std::uint64_t>(p.bytes.data()), 8, p.mr->lkey};
  ibv_send_wr write{};
  write.sg_list = &sge;
  write.num_sge = 1;
  write.opcode = IBV_WR_RDMA_WRITE;
  write.wr.rdma = {reinterpret_cast<std::uint64_t>(&p.bytes[1000]), p.mr->rkey};
  const auto post = [&] {
    ibv_send_wr* bad = nullptr;
    if (const int error = ibv_post_send(from, &write, &bad)) fail("ibv_post_send", error);
  };
  for (int i = 0; i < kDepth; ++i) post();
  // All sixteen are complete when a request of the other direction is.
  p.write(to, p.mr->rkey, &p.bytes[2000]);
  p.expect(IBV_WC_SUCCESS);
  ibv_poll_cq_attr nothing{};
  for (int round = 0; round < 1000; ++round) {
    int error = ENOENT;
    while (error == ENOENT) error = ibv_start_poll(cq, &nothing);
    for (int taken = 0; error == 0; ++taken) {
      if (cq->status != IBV_WC_SUCCESS) fail(ibv_wc_status_str(cq->status), 0);
      post();
      error = taken < 8 ? ibv_next_poll(cq) : ENOENT;
    }
    if (error != ENOENT) fail("ibv_next_poll", error);
    ibv_end_poll(cq);
  }
}

// A receive that is accepted while another thread moves the queue to ERR is flushed. Each round
// waits for hcad three times; beside others who want the cores that may take ten times as long,
// so then there are fewer rounds.
void late() {
  constexpr int kRoundsLeast = 500;
  constexpr std::chrono::seconds kLong{8};
  const auto begin = std::chrono::steady_clock::now();
  const auto goes_on = [&](int round) {
    return round < kRoundsLeast || std::chrono::steady_clock::now() - begin < kLong;
  };
  Probe p;
  std::atomic<ibv_qp*> next{nullptr};
  std::atomic<bool> posted{false};
  std::atomic<bool> over{false};
  std::atomic<int> wait{0};
  std::thread poster([&] {
    while (!over) {
      ibv_qp* qp = next.exchange(nullptr);
      if (qp == nullptr) {
        std::this_thread::yield();  // hcad may stand in line for this core
        continue;
      }
      for (int i = wait; i > 0; --i) asm volatile("");
      ibv_sge sge{reinterpret_cast<std::uint64_t>(p.bytes.data()), 8, p.mr->lkey};
      ibv_recv_wr receive{0, nullptr, &sge, 1};
      ibv_recv_wr* bad = nullptr;
      if (const int error = ibv_post_recv(qp, &receive, &bad)) fail("ibv_post_recv", error);
      posted = true;
    }
  });
  ibv_qp* qp = p.make_qp();
  for (int round = 0; round < 20'000 && goes_on(round); ++round) {
    ibv_qp_attr a{};
    a.qp_state = IBV_QPS_RESET;
    if (const int error = ibv_modify_qp(qp, &a, IBV_QP_STATE)) fail("RESET", error);
    a.qp_state = IBV_QPS_INIT;
    a.port_num = 1;
    const int error =
        ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
    if (error != 0) fail("INIT", error);
    posted = false;
    wait = round * 7919 % 20'000;
    next = qp;
    a.qp_state = IBV_QPS_ERR;
    if (const int failed = ibv_modify_qp(qp, &a, IBV_QP_STATE)) fail("ERR", failed);
    while (!posted) std::this_thread::yield();
    p.expect(IBV_WC_WR_FLUSH_ERR);  // or the test times out
  }
  over = true;
  poster.join();
}

// As many as the device says that there are, and no more.
void limits() {
  Probe p;
  ibv_device_attr device{};
  if (ibv_query_device(p.context, &device) != 0) fail("ibv_query_device");
  const auto count = [](const char* what, int most, const auto& make) {
    int made = 0;
    while (made <= most && make()) ++made;
    // Some are the probe's own, and other programs' of the node.
    if (made <= most && made > most - 16 && errno == ENOMEM) return;
    std::printf("%s: %d made of %d: %s\n", what, made, most, std::strerror(errno));
    std::exit(1);
  };
  count("PDs", device.max_pd, [&] { return ibv_alloc_pd(p.context) != nullptr; });
  count("CQs", device.max_cq,
        [&] { return ibv_create_cq(p.context, 1, nullptr, nullptr, 0) != nullptr; });
  count("MRs", device.max_mr,
        [&] { return ibv_reg_mr(p.pd, p.bytes.data(), 8, Probe::kAccess) != nullptr; });
  ibv_srq_init_attr shared{};
  shared.attr = {1, 1, 0};
  count("SRQs", device.max_srq, [&] { return ibv_create_srq(p.pd, &shared) != nullptr; });
  ibv_qp_init_attr init{};
  init.send_cq = init.recv_cq = p.cq;
  init.cap = {1, 1, 1, 1, 0};
  init.qp_type = IBV_QPT_RC;
  count("QPs", device.max_qp, [&] { return ibv_create_qp(p.pd, &init) != nullptr; });
}

// The first thread ends, another goes on.
void main_ends() {
  static Joined* p = new Joined;
  std::thread([] {
    // Until /proc says that it is no more than a name.
    const std::string path = "/proc/self/task/" + std::to_string(::getpid()) + "/stat";
    std::string stat;
    while (stat.find(") Z") == std::string::npos) {
      std::ifstream file(path);
      std::getline(file, stat);
    }
    std::memcpy(p->bytes.data(), "by anot", 8);
    p->write(p->from, p->mr->rkey, &p->bytes[1000]);
    p->expect(IBV_WC_SUCCESS);
    if (std::memcmp(&p->bytes[1000], "by anot", 8) != 0) fail("bytes", 0);
    std::printf("good\n");
    std::fflush(stdout);
    ::_exit(0);
  }).detach();
  ::pthread_exit(nullptr);
}

// A thread that is cancelled inside a verb leaves the device to the others.
void cancel() {
  Probe p;
  for (int round = 0; round < 200; ++round) {
    std::atomic<bool> begun{false};
    std::thread thread([&] {
      while (true) {
        begun = true;
        ibv_mr* mr = ibv_reg_mr(p.pd, p.bytes.data(), 8, Probe::kAccess);
        ::pthread_testcancel();
        if (mr == nullptr) fail("ibv_reg_mr of the thread");
        ibv_dereg_mr(mr);
      }
    });
    while (!begun) {
    }
    for (int i = round * 7919 % 20'000; i > 0; --i) asm volatile("");
    ::pthread_cancel(thread.native_handle());
    thread.join();
    ibv_mr* mr = ibv_reg_mr(p.pd, p.bytes.data(), 8, Probe::kAccess);
    if (mr == nullptr) fail("ibv_reg_mr after a cancelled one");
    ibv_dereg_mr(mr);
  }
}

void rate(const char* dlid, const char* kbps) {
  Probe p;
  ibv_qp* qp = p.make_qp();
  Probe::connect(qp, 1, static_cast<std::uint16_t>(std::atoi(dlid)));
  ibv_qp_rate_limit_attr attributes{};
  attributes.rate_limit = static_cast<std::uint32_t>(std::atoi(kbps));
  if (const int error = ibv_modify_qp_rate_limit(qp, &attributes)) fail("rate", error);
  std::printf("granted\n");
  std::fflush(stdout);
  (void)std::getchar();  // holds what it booked until it is told to end
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "";
  if (what == "wr") {
    wr();
  } else if (what == "word") {
    word();
  } else if (what == "resize") {
    resize();
  } else if (what == "rereg") {
    rereg();
  } else if (what == "fork") {
    after_fork();
  } else if (what == "async") {
    async();
  } else if (what == "twice") {
    twice();
  } else if (what == "rebind") {
    rebind();
  } else if (what == "full") {
    full();
  } else if (what == "late") {
    late();
  } else if (what == "limits") {
    limits();
  } else if (what == "main") {
    main_ends();
  } else if (what == "cancel") {
    cancel();
  } else if (what == "rate" && argc == 4) {
    rate(argv[2], argv[3]);
    return 0;
  } else {
    std::fprintf(
        stderr,
        "usage: verbs_probe wr | word | resize | rereg | fork | async | twice | rebind | full | "
        "late | limits | main | cancel | rate DLID KBPS\n");
    return 2;
  }
  std::printf("good\n");
  return 0;
}
