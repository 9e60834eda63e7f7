// A verbs program for tests/apps: each mistake is one that people make. It prints the status that
// the mistake ends with; hcad's log says why.
//
// usage: mistake_probe key | bounds | access | short | unmapped | invalidate | missing | list |
//                      order | mtu
#include <sys/mman.h>

#include <string>

#include "tests/abi/probe.h"

namespace {

using namespace probe;

void receive(const Probe& p, ibv_qp* qp, std::uint32_t bytes) {
  ibv_sge sge{reinterpret_cast<std::uint64_t>(p.bytes.data()), bytes, p.mr->lkey};
  ibv_recv_wr wr{};
  wr.wr_id = 7;
  wr.sg_list = &sge;
  wr.num_sge = 1;
  ibv_recv_wr* bad = nullptr;
  if (const int error = ibv_post_recv(qp, &wr, &bad)) fail("ibv_post_recv", error);
}

void send(const Probe& p, ibv_qp* qp, std::uint32_t lkey, ibv_wr_opcode opcode = IBV_WR_SEND) {
  ibv_sge sge{reinterpret_cast<std::uint64_t>(p.bytes.data()), 100, lkey};
  ibv_send_wr wr{};
  wr.wr_id = 42;
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.opcode = opcode;
  wr.invalidate_rkey = p.mr->rkey;
  wr.send_flags = IBV_SEND_SIGNALED;
  ibv_send_wr* bad = nullptr;
  if (const int error = ibv_post_send(qp, &wr, &bad)) fail("ibv_post_send", error);
}

void transfer(const std::string& what) {
  Joined p;
  if (what == "key") p.write(p.from, p.mr->rkey + 1, p.bytes.data());
  if (what == "bounds") p.write(p.from, p.mr->rkey, p.bytes.data() + p.bytes.size() - 4);
  if (what == "access") {
    ibv_mr* mr = ibv_reg_mr(p.pd, p.bytes.data(), 4096, IBV_ACCESS_LOCAL_WRITE);
    if (mr == nullptr) fail("ibv_reg_mr");
    p.write(p.from, mr->rkey, p.bytes.data());
  }
  if (what == "unmapped") {
    constexpr std::size_t kPage = 4096;
    void* const page =
        ::mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ibv_mr* mr = ibv_reg_mr(p.pd, page, kPage, Probe::kAccess);
    if (mr == nullptr || ::munmap(page, kPage) != 0) fail("ibv_reg_mr");
    p.write(p.from, mr->rkey, page);
  }
  if (what == "invalidate") receive(p, p.to, 100);
  if (what == "invalidate") send(p, p.from, p.mr->lkey, IBV_WR_SEND_WITH_INV);
  if (what == "short") receive(p, p.to, 16);
  if (what == "short") send(p, p.from, p.mr->lkey);
  if (what == "list") send(p, p.from, p.mr->lkey + 1);
  if (what == "missing") {
    ibv_qp* qp = p.make_qp();
    ibv_qp* peer = p.make_qp();
    Probe::connect(qp, peer->qp_num, p.port.lid, 1);
    Probe::connect(peer, qp->qp_num, p.port.lid);
    send(p, qp, p.mr->lkey);
  }
  for (ibv_wc wc = p.poll();; wc = p.poll()) {
    if (wc.status == IBV_WC_SUCCESS) fail("no mistake", 0);
    std::printf("%s\n", ibv_wc_status_str(wc.status));
    if (wc.wr_id != 7) return;  // the requester's comes last
  }
}

void modify(const std::string& what) {
  Probe p;
  ibv_qp* qp = p.make_qp();
  ibv_qp_attr a{};
  a.port_num = 1;
  a.qp_state = what == "order" ? IBV_QPS_RTS : IBV_QPS_INIT;
  int error =
      ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
  if (what == "mtu") {
    if (error != 0) fail("INIT", error);
    a.qp_state = IBV_QPS_RTR;
    a.ah_attr.dlid = p.port.lid;
    a.ah_attr.port_num = 1;
    error = ibv_modify_qp(qp, &a,
                          IBV_QP_STATE | IBV_QP_AV | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                              IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
  }
  std::printf("%s\n", std::strerror(error));
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "";
  if (what == "order" || what == "mtu") {
    modify(what);
  } else {
    transfer(what);
  }
}
