// A verbs program for tests/apps: calls of a thread that is to end (pthread_cancel), calls between
// start_poll and end_poll of the same thread, and calls when the program has ended. It prints what
// came of it and ends with 0; a hang ends by SIGALRM.
//
// usage: thread_probe post | notify | interfaces | destroy | reset | resize | late
#include <ifaddrs.h>
#include <net/if.h>
#include <poll.h>
#include <pthread.h>
#include <unistd.h>

#include <functional>
#include <string>

#include "tests/abi/probe.h"

namespace {

using namespace probe;

std::function<void()> g_call;

// True: the thread ended within the call, not behind it.
bool cancelled_within(const std::function<void()>& call) {
  static bool behind;
  behind = false;
  g_call = call;
  pthread_t thread;
  const auto begin = [](void*) -> void* {
    pthread_cancel(pthread_self());  // from now on it ends at the first cancellation point
    g_call();
    behind = true;
    pthread_testcancel();
    return nullptr;
  };
  if (pthread_create(&thread, nullptr, begin, nullptr) != 0) fail("pthread_create");
  pthread_join(thread, nullptr);
  return !behind;
}

void must_not_be(bool within, const char* what) {
  if (within) fail(what, ECANCELED);
}

void post() {
  Joined p;
  for (int i = 0; i < 3; ++i) {
    usleep(300'000);  // hcad sleeps, so that the doorbell is a call
    must_not_be(cancelled_within([&] { p.write(p.from, p.mr->rkey, p.bytes.data()); }), "post");
    if (p.poll().status != IBV_WC_SUCCESS) fail("status", EIO);
  }
}

// A QP of its own queue, in ERR with a receive that was flushed.
struct Flushed : Probe {
  ibv_comp_channel* channel = ibv_create_comp_channel(context);
  ibv_cq_ex* extended = nullptr;
  ibv_qp* qp = nullptr;

  Flushed() {
    ibv_cq_init_attr_ex wanted{};
    wanted.cqe = 16;
    wanted.channel = channel;
    wanted.wc_flags = IBV_WC_STANDARD_FLAGS;
    wanted.comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS;
    wanted.flags = IBV_CREATE_CQ_ATTR_SINGLE_THREADED;
    extended = ibv_create_cq_ex(context, &wanted);
    if (channel == nullptr || extended == nullptr) fail("ibv_create_cq_ex");
    cq = ibv_cq_ex_to_cq(extended);
    qp = make_qp();
    connect(qp, qp->qp_num, port.lid);
    ibv_sge sge{reinterpret_cast<std::uint64_t>(bytes.data()), 8, mr->lkey};
    ibv_recv_wr wr{};
    wr.sg_list = &sge;
    wr.num_sge = 1;
    ibv_recv_wr* bad = nullptr;
    if (const int error = ibv_post_recv(qp, &wr, &bad)) fail("ibv_post_recv", error);
    change(IBV_QPS_ERR);
    usleep(300'000);
  }
  void change(ibv_qp_state state) const {
    ibv_qp_attr a{};
    a.qp_state = state;
    if (const int error = ibv_modify_qp(qp, &a, IBV_QP_STATE)) fail("ibv_modify_qp", error);
  }
};

void notify() {
  const Flushed p;
  must_not_be(cancelled_within([&] { ibv_req_notify_cq(p.cq, 0); }), "ibv_req_notify_cq");
  pollfd event{p.channel->fd, POLLIN, 0};
  if (::poll(&event, 1, 2000) != 1) fail("no event", ETIMEDOUT);
}

// Nothing here may end the process.
void interfaces() {
  cancelled_within([] {
    ifaddrs* list = nullptr;
    getifaddrs(&list);
  });
  cancelled_within([] { if_nametoindex("ib0"); });
}

void within_a_poll(const std::string& what) {
  const Flushed p;
  ibv_poll_cq_attr none{};
  while (ibv_start_poll(p.extended, &none) == ENOENT) continue;
  if (what == "destroy" && ibv_destroy_qp(p.qp) != 0) fail("ibv_destroy_qp");
  if (what == "reset") p.change(IBV_QPS_RESET);
  if (what == "resize" && ibv_resize_cq(p.cq, 64) != 0) fail("ibv_resize_cq");
  ibv_end_poll(p.extended);
}

bool g_late = false;
ibv_device** g_list = nullptr;

// Behind all destructors of C++, those of libraries as well.
[[gnu::destructor]] void end_late() {
  if (!g_late) return;
  ibv_free_device_list(g_list);
  int count = 0;
  ibv_device** again = ibv_get_device_list(&count);
  ibv_free_device_list(again);
  std::printf("%d device\n", count);
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "";
  alarm(20);
  if (what == "post") post();
  if (what == "notify") notify();
  if (what == "interfaces") interfaces();
  if (what == "destroy" || what == "reset" || what == "resize") within_a_poll(what);
  g_late = what == "late";
  if (g_late) g_list = ibv_get_device_list(nullptr);
  std::printf("%s done\n", what.c_str());
  return 0;
}
