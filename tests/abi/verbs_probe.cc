// A verbs program for tests/apps: what Debian's programs do not call. Built against the headers and
// the library of rdma-core alone. It prints one word for what it found and ends with 0, or says
// what is wrong and ends with 1.
//
// usage: verbs_probe wr | resize | rereg | fork | async | rate DLID KBPS
#include <sys/wait.h>
#include <unistd.h>

#include <string>

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
  } else if (what == "resize") {
    resize();
  } else if (what == "rereg") {
    rereg();
  } else if (what == "fork") {
    after_fork();
  } else if (what == "async") {
    async();
  } else if (what == "rate" && argc == 4) {
    rate(argv[2], argv[3]);
    return 0;
  } else {
    std::fprintf(stderr,
                 "usage: verbs_probe wr | resize | rereg | fork | async | rate DLID KBPS\n");
    return 2;
  }
  std::printf("good\n");
  return 0;
}
