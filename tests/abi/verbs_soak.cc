// Random sequences of verbs calls by one program against the model of the object rules
// (soak_model.h): each call must do what the rules say, with the errno that they say, and every
// work request must complete once and in order. `./flitnet soak verbs` runs several at once on the
// nodes of a cluster. Prints its seed; at a difference it says which call of which seed and ends
// with 1.
//
// usage: verbs_soak SEED SECONDS
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <unordered_map>
#include <vector>

#include "emu/base/prng.h"
#include "tests/abi/soak_model.h"

namespace soak {
namespace {

constexpr std::size_t kObjectsMax = 12;  // of a kind
constexpr std::size_t kQpsMax = 24;

class Soak {
 public:
  explicit Soak(std::uint64_t seed) : seed_(seed), prng_(seed) {
    ibv_device** list = ibv_get_device_list(nullptr);
    if (list == nullptr || list[0] == nullptr) wrong("no device", 0, 1);
    context_ = ibv_open_device(list[0]);
    ibv_free_device_list(list);
    if (context_ == nullptr || ibv_query_port(context_, 1, &port_) != 0) wrong("open", errno, 0);
  }

  void step() {
    ++steps_;
    static constexpr void (Soak::*kSteps[])() = {
        &Soak::alloc_pd,       &Soak::dealloc_pd, &Soak::create_cq, &Soak::destroy_cq,
        &Soak::resize_cq,      &Soak::reg_mr,     &Soak::dereg_mr,  &Soak::create_srq,
        &Soak::destroy_srq,    &Soak::create_qp,  &Soak::create_qp, &Soak::destroy_qp,
        &Soak::modify_qp,      &Soak::modify_qp,  &Soak::modify_qp, &Soak::bring_up,
        &Soak::query_qp,       &Soak::post_send,  &Soak::post_send, &Soak::post_send,
        &Soak::post_recv,      &Soak::post_recv,  &Soak::poll,      &Soak::poll,
        &Soak::fail_and_drain, &Soak::bad_calls};
    (this->*kSteps[prng_.below(std::size(kSteps))])();
  }
  std::uint64_t steps() const { return steps_; }
  std::uint64_t completions() const { return completions_; }
  std::uint64_t refusals() const { return refusals_; }
  void close() {
    while (!qps_.empty()) destroy(qps_.size() - 1);
    for (auto& mr : mrs_) same("ibv_dereg_mr", ibv_dereg_mr(mr->mr), 0);
    for (auto& srq : srqs_) same("ibv_destroy_srq", ibv_destroy_srq(srq->srq), 0);
    for (auto& cq : cqs_) same("ibv_destroy_cq", ibv_destroy_cq(cq->cq), 0);
    for (auto& pd : pds_) same("ibv_dealloc_pd", ibv_dealloc_pd(pd->pd), 0);
    same("ibv_close_device", ibv_close_device(context_), 0);
  }

 private:
  [[noreturn]] void wrong(const char* what, long got, long expected) const {
    std::printf("seed %llu, step %llu: %s: %ld, expected %ld\n",
                static_cast<unsigned long long>(seed_), static_cast<unsigned long long>(steps_),
                what, got, expected);
    std::fflush(stdout);
    std::_Exit(1);
  }
  void same(const char* what, long got, long expected) {
    if (expected != 0) ++refusals_;
    if (got != expected) wrong(what, got, expected);
  }
  bool chance(std::uint32_t one_in) { return prng_.below(one_in) == 0; }
  template <class T>
  T* any(std::vector<std::unique_ptr<T>>& from) {
    return from.empty() ? nullptr
                        : from[prng_.below(static_cast<std::uint32_t>(from.size()))].get();
  }
  template <class T>
  static void forget(std::vector<std::unique_ptr<T>>& from, const T* what) {
    std::erase_if(from, [what](const auto& item) { return item.get() == what; });
  }

  // ---- objects ----
  void alloc_pd() {
    if (pds_.size() == kObjectsMax) return;
    ibv_pd* pd = ibv_alloc_pd(context_);
    if (pd == nullptr) wrong("ibv_alloc_pd", errno, 0);
    pds_.push_back(std::make_unique<Pd>(Pd{pd}));
  }
  void dealloc_pd() {
    Pd* pd = any(pds_);
    if (pd == nullptr) return;
    same("ibv_dealloc_pd", ibv_dealloc_pd(pd->pd), busy_if(pd->users != 0));
    if (pd->users == 0) forget(pds_, pd);
  }
  void create_cq() {
    if (cqs_.size() == kObjectsMax) return;
    const int wanted = 16 + static_cast<int>(prng_.below(240));
    ibv_cq* cq = ibv_create_cq(context_, wanted, nullptr, nullptr, 0);
    if (cq == nullptr) wrong("ibv_create_cq", errno, 0);
    if (cq->cqe < wanted) wrong("cqe", cq->cqe, wanted);
    cqs_.push_back(std::make_unique<Cq>(Cq{cq, cq->cqe}));
  }
  void destroy_cq() {
    Cq* cq = any(cqs_);
    if (cq == nullptr) return;
    same("ibv_destroy_cq", ibv_destroy_cq(cq->cq), busy_if(cq->users != 0));
    if (cq->users == 0) forget(cqs_, cq);
  }
  void resize_cq() {
    Cq* cq = any(cqs_);
    if (cq == nullptr || cq->depth > 2048) return;
    const int wanted = cq->depth + static_cast<int>(prng_.below(64));
    same("ibv_resize_cq", ibv_resize_cq(cq->cq, wanted), 0);
    if (cq->cq->cqe < wanted) wrong("cqe after resize", cq->cq->cqe, wanted);
    cq->depth = cq->cq->cqe;
  }
  void reg_mr() {
    Pd* pd = any(pds_);
    if (pd == nullptr || mrs_.size() == kObjectsMax) return;
    const int access = static_cast<int>(prng_.below(16));  // of the four first flags
    const bool writes = (access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)) != 0;
    const bool refused = writes && (access & IBV_ACCESS_LOCAL_WRITE) == 0;
    const std::size_t at = prng_.below(4096);
    errno = 0;
    ibv_mr* mr = ibv_reg_mr(pd->pd, bytes_.data() + at, 1 + prng_.below(4096), access);
    same("ibv_reg_mr", mr == nullptr ? errno : 0, refused ? EINVAL : 0);
    if (mr == nullptr) return;
    mrs_.push_back(std::make_unique<Mr>(Mr{mr, pd}));
    ++pd->users;
  }
  void dereg_mr() {
    Mr* mr = any(mrs_);
    if (mr == nullptr) return;
    same("ibv_dereg_mr", ibv_dereg_mr(mr->mr), 0);
    --mr->pd->users;
    forget(mrs_, mr);
  }
  void create_srq() {
    Pd* pd = any(pds_);
    if (pd == nullptr || srqs_.size() == kObjectsMax) return;
    ibv_srq_init_attr init{};
    init.attr.max_wr = 1 + prng_.below(32);
    init.attr.max_sge = 1;
    ibv_srq* srq = ibv_create_srq(pd->pd, &init);
    if (srq == nullptr) wrong("ibv_create_srq", errno, 0);
    srqs_.push_back(std::make_unique<Srq>(Srq{srq, pd}));
    ++pd->users;
  }
  void destroy_srq() {
    Srq* srq = any(srqs_);
    if (srq == nullptr) return;
    same("ibv_destroy_srq", ibv_destroy_srq(srq->srq), busy_if(srq->users != 0));
    if (srq->users != 0) return;
    --srq->pd->users;
    forget(srqs_, srq);
  }

  // ---- queue pairs ----
  void create_qp() {
    Pd* pd = any(pds_);
    Cq* send_cq = any(cqs_);
    Cq* recv_cq = any(cqs_);
    if (pd == nullptr || send_cq == nullptr || qps_.size() == kQpsMax) return;
    static constexpr ibv_qp_type kTypes[] = {IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD};
    Srq* srq = chance(4) ? any(srqs_) : nullptr;
    ibv_qp_init_attr init{};
    init.send_cq = send_cq->cq;
    init.recv_cq = recv_cq->cq;
    init.srq = srq != nullptr ? srq->srq : nullptr;
    init.cap = {1 + prng_.below(16), 1 + prng_.below(16), 1, 1, prng_.below(64)};
    init.qp_type = kTypes[prng_.below(3)];
    if (init.qp_type == IBV_QPT_UC) init.srq = nullptr, srq = nullptr;
    ibv_qp* qp = ibv_create_qp(pd->pd, &init);
    if (qp == nullptr) wrong("ibv_create_qp", errno, 0);
    auto made = std::make_unique<Qp>();
    made->qp = qp;
    made->pd = pd;
    made->send_cq = send_cq;
    made->recv_cq = recv_cq;
    made->srq = srq;
    made->type = init.qp_type;
    made->send_slots = static_cast<int>(init.cap.max_send_wr);
    made->recv_slots = static_cast<int>(init.cap.max_recv_wr);
    ++pd->users, ++send_cq->users, ++recv_cq->users;
    if (srq != nullptr) ++srq->users;
    by_number_[qp->qp_num] = made.get();
    qps_.push_back(std::move(made));
  }
  void destroy(std::size_t at) {
    Qp& qp = *qps_[at];
    forget_requests(qp);
    by_number_.erase(qp.qp->qp_num);
    same("ibv_destroy_qp", ibv_destroy_qp(qp.qp), 0);
    --qp.pd->users, --qp.send_cq->users, --qp.recv_cq->users;
    if (qp.srq != nullptr) --qp.srq->users;
    qps_.erase(qps_.begin() + static_cast<std::ptrdiff_t>(at));
  }
  void destroy_qp() {
    if (!qps_.empty()) destroy(prng_.below(static_cast<std::uint32_t>(qps_.size())));
  }
  // Its completions disappear with it, or with RESET.
  static void forget_requests(Qp& qp) {
    qp.send_cq->expected -= static_cast<int>(qp.sends.size());
    qp.recv_cq->expected -= static_cast<int>(qp.recvs.size());
    qp.sends.clear();
    qp.recvs.clear();
  }
  ibv_qp_attr attributes_for(const Qp& qp) {
    ibv_qp_attr a{};
    a.port_num = 1;
    a.qkey = 7;
    a.path_mtu = IBV_MTU_1024;
    a.dest_qp_num = qp.qp->qp_num;  // to itself: through hcad all the same
    a.max_dest_rd_atomic = a.max_rd_atomic = 1;
    a.min_rnr_timer = 1;
    a.ah_attr.dlid = port_.lid;
    a.ah_attr.port_num = 1;
    a.timeout = 8;
    a.retry_cnt = a.rnr_retry = 2;
    return a;
  }
  int modify(Qp& qp, ibv_qp_state to, int mask) {
    ibv_qp_attr a = attributes_for(qp);
    a.qp_state = to;
    const int error = ibv_modify_qp(qp.qp, &a, mask);
    if (error == 0) qp.state = to;
    if (error == 0 && to == IBV_QPS_RESET) forget_requests(qp);
    return error;
  }
  void modify_qp() {
    Qp* qp = any(qps_);
    if (qp == nullptr) return;
    const auto to = static_cast<ibv_qp_state>(prng_.below(7));  // RESET ... ERR
    if (settle(*qp)) return;
    int mask = required_mask(qp->type, to);
    bool allowed = may_follow(qp->state, to) && to != IBV_QPS_SQE;
    if (qp->state == to && (to == IBV_QPS_INIT || to == IBV_QPS_RTS)) mask = IBV_QP_STATE;
    if (qp->state == IBV_QPS_SQD && to == IBV_QPS_RTS) mask = IBV_QP_STATE;
    if (allowed && mask != IBV_QP_STATE && chance(4)) {  // leave a required one out
      int bit = 1 << prng_.below(24);
      while ((mask & bit) == 0 || bit == IBV_QP_STATE) bit = 1 << prng_.below(24);
      mask &= ~bit;
      allowed = false;
    }
    const ibv_qp_state from = qp->state;
    const int error = modify(*qp, to, mask);
    if (error == (allowed ? 0 : EINVAL)) return same("ibv_modify_qp", error, error);
    if (error != 0 && settle(*qp)) return;  // it fell while we asked
    std::printf("type %d, state %d to %d, mask %#x\n", qp->type, from, to,
                static_cast<unsigned>(mask));
    wrong("ibv_modify_qp", error, allowed ? 0 : EINVAL);
  }
  // A QP that sends to itself may be in ERR by what it was sent.
  bool settle(Qp& qp) {
    ibv_qp_attr a{};
    ibv_qp_init_attr init{};
    same("ibv_query_qp", ibv_query_qp(qp.qp, &a, IBV_QP_STATE, &init), 0);
    const bool fell = a.qp_state == IBV_QPS_ERR && qp.state != IBV_QPS_ERR && ran(qp);
    const bool sqe = a.qp_state == IBV_QPS_SQE && qp.type != IBV_QPT_RC && ran(qp);
    if (fell || sqe) qp.state = a.qp_state;
    return fell || sqe;
  }
  static bool ran(const Qp& qp) {
    return qp.state == IBV_QPS_RTS || qp.state == IBV_QPS_SQD || qp.state == IBV_QPS_RTR;
  }
  void bring_up() {
    Qp* qp = any(qps_);
    if (qp == nullptr || qp->state != IBV_QPS_RESET) return;
    for (const ibv_qp_state to : {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS}) {
      same("ibv_modify_qp up", modify(*qp, to, required_mask(qp->type, to)), 0);
    }
  }
  void query_qp() {
    Qp* qp = any(qps_);
    if (qp == nullptr || settle(*qp)) return;
    ibv_qp_attr a{};
    ibv_qp_init_attr init{};
    same("ibv_query_qp", ibv_query_qp(qp->qp, &a, IBV_QP_STATE | IBV_QP_CAP, &init), 0);
    if (a.qp_state != qp->state && !(ran(*qp) && a.qp_state >= IBV_QPS_SQE)) {
      wrong("state", a.qp_state, qp->state);
    }
    if (init.qp_type != qp->type) wrong("type", init.qp_type, qp->type);
  }

  // ---- work requests ----
  void post_send() {
    Qp* qp = any(qps_);
    if (qp == nullptr || qp->type == IBV_QPT_UD || qp->send_cq->expected >= qp->send_cq->depth) {
      return;
    }
    ibv_send_wr wr{};
    wr.wr_id = ++next_id_;
    wr.opcode = chance(2) ? IBV_WR_SEND : IBV_WR_RDMA_WRITE;  // of nothing: no key is needed
    const bool signaled = !chance(3);
    wr.send_flags = signaled ? unsigned{IBV_SEND_SIGNALED} : 0U;
    ibv_send_wr* bad = nullptr;
    const int error = ibv_post_send(qp->qp, &wr, &bad);
    if (error == ENOMEM && static_cast<int>(qp->sends.size()) >= qp->send_slots) return;
    same("ibv_post_send", error, post_send_error(*qp));
    if (error != 0) return;
    qp->sends.push_back({wr.wr_id, signaled});
    ++qp->send_cq->expected;
  }
  void post_recv() {
    Qp* qp = any(qps_);
    if (qp == nullptr || qp->recv_cq->expected >= qp->recv_cq->depth) return;
    ibv_recv_wr wr{};
    wr.wr_id = ++next_id_;
    ibv_recv_wr* bad = nullptr;
    const int error = ibv_post_recv(qp->qp, &wr, &bad);
    if (error == ENOMEM && static_cast<int>(qp->recvs.size()) >= qp->recv_slots) return;
    same("ibv_post_recv", error, post_recv_error(*qp));
    if (error != 0) return;
    qp->recvs.push_back({wr.wr_id, true});
    ++qp->recv_cq->expected;
  }
  // In the order of posting; unsignaled ones before it are done too, without a completion.
  void completed(const Cq& cq, const ibv_wc& wc) {
    ++completions_;
    const auto it = by_number_.find(wc.qp_num);
    if (it == by_number_.end()) wrong("a completion of a QP that is gone", wc.qp_num, 0);
    Qp& qp = *it->second;
    const bool is_recv = (wc.opcode & IBV_WC_RECV) != 0;
    auto& queue = is_recv ? qp.recvs : qp.sends;
    Cq& own = is_recv ? *qp.recv_cq : *qp.send_cq;
    if (&own != &cq) wrong("a completion in another CQ", wc.qp_num, 0);
    while (!queue.empty() && queue.front().wr_id != wc.wr_id) {
      if (queue.front().signaled) break;
      queue.pop_front();
      --own.expected;
    }
    if (queue.empty() || queue.front().wr_id != wc.wr_id) {
      wrong(is_recv ? "receive out of order" : "send out of order", static_cast<long>(wc.wr_id),
            queue.empty() ? 0 : static_cast<long>(queue.front().wr_id));
    }
    if (!queue.front().signaled && wc.status == IBV_WC_SUCCESS) {
      wrong("success of an unsignaled request", static_cast<long>(wc.wr_id), 0);
    }
    queue.pop_front();
    --own.expected;
  }
  int poll_once(Cq& cq) {
    ibv_wc wc[8];
    const int got = ibv_poll_cq(cq.cq, 1 + static_cast<int>(prng_.below(8)), wc);
    if (got < 0) wrong("ibv_poll_cq", got, 0);
    for (int i = 0; i < got; ++i) completed(cq, wc[i]);
    return got;
  }
  void poll() {
    if (Cq* cq = any(cqs_)) poll_once(*cq);
  }
  // Everything that was posted comes back once the QP is in ERR.
  void fail_and_drain() {
    Qp* qp = any(qps_);
    if (qp == nullptr || qp->state == IBV_QPS_RESET || !chance(4)) return;
    same("ibv_modify_qp to ERR", modify(*qp, IBV_QPS_ERR, IBV_QP_STATE), 0);
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    const auto signaled = [](const Request& r) { return r.signaled; };
    while (std::ranges::any_of(qp->sends, signaled) || !qp->recvs.empty()) {
      const int got = poll_once(*qp->send_cq) + poll_once(*qp->recv_cq);
      if (got == 0 && std::chrono::steady_clock::now() > end) {
        wrong("requests that never complete",
              static_cast<long>(qp->sends.size() + qp->recvs.size()), 0);
      }
    }
  }

  // ---- calls that are never right ----
  void bad_calls() {
    errno = 0;
    switch (prng_.below(5)) {
      case 0:
        same("CQ of 0", ibv_create_cq(context_, 0, nullptr, nullptr, 0) == nullptr ? errno : 0,
             EINVAL);
        return;
      case 1:
        same("CQ of 2^30",
             ibv_create_cq(context_, 1 << 30, nullptr, nullptr, 0) == nullptr ? errno : 0, EINVAL);
        return;
      case 2:
        if (Pd* pd = any(pds_)) {
          same("MR of nothing mapped",
               ibv_reg_mr(pd->pd, reinterpret_cast<void*>(4096), 4096, 0) == nullptr ? errno : 0,
               EFAULT);
        }
        return;
      case 3:
        if (Cq* cq = any(cqs_)) same("resize to 0", ibv_resize_cq(cq->cq, 0), EINVAL);
        return;
      default:
        Pd* pd = any(pds_);
        Cq* cq = any(cqs_);
        if (pd == nullptr || cq == nullptr) return;
        ibv_qp_init_attr init{};
        init.send_cq = init.recv_cq = cq->cq;
        init.cap = {1u << 20, 1, 1, 1, 0};
        init.qp_type = IBV_QPT_RC;
        same("QP of 2^20", ibv_create_qp(pd->pd, &init) == nullptr ? errno : 0, EINVAL);
    }
  }

  std::uint64_t seed_;
  emu::Prng prng_;
  ibv_context* context_ = nullptr;
  ibv_port_attr port_{};
  std::vector<std::unique_ptr<Pd>> pds_;
  std::vector<std::unique_ptr<Cq>> cqs_;
  std::vector<std::unique_ptr<Srq>> srqs_;
  std::vector<std::unique_ptr<Mr>> mrs_;
  std::vector<std::unique_ptr<Qp>> qps_;
  std::unordered_map<std::uint32_t, Qp*> by_number_;
  std::vector<std::uint8_t> bytes_ = std::vector<std::uint8_t>(16384);
  std::uint64_t next_id_ = 0;
  std::uint64_t steps_ = 0;
  std::uint64_t completions_ = 0;
  std::uint64_t refusals_ = 0;
};

}  // namespace
}  // namespace soak

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const std::uint64_t seed = std::strtoull(argv[1], nullptr, 10);
  const auto end = std::chrono::steady_clock::now() +
                   std::chrono::milliseconds(static_cast<long>(std::atof(argv[2]) * 1000));
  soak::Soak soak(seed);
  while (std::chrono::steady_clock::now() < end) {
    for (int i = 0; i < 200; ++i) soak.step();
  }
  soak.close();
  std::printf("seed %s: %llu calls, %llu refused, %llu completions\n", argv[1],
              static_cast<unsigned long long>(soak.steps()),
              static_cast<unsigned long long>(soak.refusals()),
              static_cast<unsigned long long>(soak.completions()));
  return 0;
}
