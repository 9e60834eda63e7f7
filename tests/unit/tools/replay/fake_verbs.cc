#include "tests/unit/tools/replay/fake_verbs.h"

#include <infiniband/verbs.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <vector>

#include "emu/base/launch_ext.h"

namespace tools::fake {
namespace {

struct Wc {
  std::uint64_t wr_id;
  ibv_wc_status status;
  std::uint32_t bytes;
  std::uint32_t qpn;
  std::uint64_t time_ns;
};
struct FakeCq {
  ibv_cq_ex ex;  // first: verbs hands out pointers to it
  std::deque<Wc> done;
  bool shows = false;  // done's first is in ex and leaves with the next step of the poll
};
struct FakeQp {
  ibv_qp qp;
  ibv_qp_type type;
  std::deque<ibv_recv_wr> receives;
  std::deque<ibv_sge> receive_sges;
  std::uint32_t dest_qpn;
  std::uint64_t launch_ns, span_ns, last_arrival_ns, kbps;
  std::uint32_t outstanding;
  int rejected_by;
};
struct Message {
  std::uint32_t from, to;
  std::uint64_t wr_id;
  bool signaled;
  std::vector<std::uint8_t> bytes;
};

std::recursive_mutex lock;
Faults the_faults;
std::map<std::uint32_t, FakeQp*> qps;
std::multimap<std::uint64_t, Message> flying;  // by arrival
std::uint32_t next_qpn = 100;
std::uint16_t next_lid = 1;
std::uint64_t booked_kbps = 0;
std::uint64_t messages = 0;
ibv_device the_device{};

std::uint64_t emulated_ns = 1'000'000'000;
std::map<ibv_context*, bool> polled;  // since time went on last; one entry per open device

std::uint64_t now_ns() {
  const std::lock_guard guard(lock);
  return emulated_ns;
}
// Time goes on when every device has looked at its queue: a thread that the host does not run stops
// the clock and misses nothing.
void polled_by(ibv_context* context) {
  constexpr std::uint64_t kRoundNs = 2'000'000;
  polled[context] = true;
  if (!std::ranges::all_of(polled, [](const auto& device) { return device.second; })) return;
  for (auto& device : polled) device.second = false;
  emulated_ns += kRoundNs;
}
bool every(std::uint32_t n) { return n != 0 && messages % n == n - 1; }

FakeCq* cq_of(ibv_cq* cq) { return reinterpret_cast<FakeCq*>(cq); }

void deliver(const Message& message, std::uint64_t time_ns) {
  const auto sender = qps.find(message.from);
  if (sender != qps.end()) {
    --sender->second->outstanding;
    if (message.signaled) {
      cq_of(sender->second->qp.send_cq)
          ->done.push_back({message.wr_id, IBV_WC_SUCCESS, 0, message.from, time_ns});
    }
  }
  const auto target = qps.find(message.to);
  if (target == qps.end() || target->second->receives.empty()) return;
  FakeQp& to = *target->second;
  const ibv_sge sge = to.receive_sges.front();
  const std::size_t grh = to.type == IBV_QPT_UD ? 40 : 0;
  auto* bytes = reinterpret_cast<std::uint8_t*>(sge.addr);
  std::memcpy(bytes + grh, message.bytes.data(), message.bytes.size());
  cq_of(to.qp.recv_cq)
      ->done.push_back({to.receives.front().wr_id, IBV_WC_SUCCESS,
                        static_cast<std::uint32_t>(message.bytes.size() + grh), message.to,
                        time_ns});
  to.receives.pop_front();
  to.receive_sges.pop_front();
}

void pump() {
  const std::uint64_t now = now_ns();
  while (!flying.empty() && flying.begin()->first <= now) {
    auto first = flying.extract(flying.begin());
    deliver(first.mapped(), first.key());
  }
}

int post_send(ibv_qp* qp, ibv_send_wr* wr, ibv_send_wr** bad) {
  const std::lock_guard guard(lock);
  auto& self = *reinterpret_cast<FakeQp*>(qp);
  *bad = wr;
  const std::uint32_t limit = the_faults.outstanding_max;
  if (limit != 0 && self.outstanding >= limit) return ENOMEM;
  const bool ud = self.type == IBV_QPT_UD;
  Message message{.from = qp->qp_num,
                  .to = ud ? wr->wr.ud.remote_qpn : self.dest_qpn,
                  .wr_id = wr->wr_id,
                  .signaled = (wr->send_flags & IBV_SEND_SIGNALED) != 0,
                  .bytes = {}};
  for (int i = 0; i < wr->num_sge; ++i) {
    const auto* from = reinterpret_cast<const std::uint8_t*>(wr->sg_list[i].addr);
    message.bytes.insert(message.bytes.end(), from, from + wr->sg_list[i].length);
  }
  ++messages;
  if (messages == the_faults.at_message.first) the_faults.at_message.second();
  if (every(the_faults.corrupt_every)) message.bytes.back() ^= 1;
  if (every(the_faults.behead_every)) message.bytes[9] ^= 1;
  // Packet i of n leaves at launch + i * span / n; the last one's arrival is the message's.
  const std::uint64_t packets = (message.bytes.size() + 611) / 612;
  std::uint64_t at = std::max(emulated_ns, self.launch_ns) +
                     self.span_ns * (packets - 1) / packets + the_faults.delay_ns;
  if (every(the_faults.late_every)) at += 50'000'000;
  at = std::max(at, self.last_arrival_ns);  // in order
  self.last_arrival_ns = at;
  self.launch_ns = self.span_ns = 0;
  ++self.outstanding;
  if (ud && every(the_faults.lose_every)) message.to = 0;
  if (ud && every(the_faults.double_every)) {
    ++self.outstanding;
    Message twin = message;
    twin.signaled = false;
    flying.emplace(at, std::move(twin));
  }
  flying.emplace(at, std::move(message));
  return 0;
}

int post_recv(ibv_qp* qp, ibv_recv_wr* wr, ibv_recv_wr**) {
  const std::lock_guard guard(lock);
  auto& self = *reinterpret_cast<FakeQp*>(qp);
  self.receives.push_back(*wr);
  self.receive_sges.push_back(*wr->sg_list);
  return 0;
}

void show(FakeCq* cq) {
  cq->ex.wr_id = cq->done.front().wr_id;
  cq->ex.status = cq->done.front().status;
  cq->shows = true;
}
int start_poll(ibv_cq_ex* ex, ibv_poll_cq_attr*) {
  const std::lock_guard guard(lock);
  if (the_faults.dead) return EIO;
  polled_by(ex->context);
  pump();
  auto* cq = reinterpret_cast<FakeCq*>(ex);
  if (cq->done.empty()) return ENOENT;
  show(cq);
  return 0;
}
int next_poll(ibv_cq_ex* ex) {
  const std::lock_guard guard(lock);
  auto* cq = reinterpret_cast<FakeCq*>(ex);
  cq->done.pop_front();
  cq->shows = false;
  if (cq->done.empty()) return ENOENT;
  show(cq);
  return 0;
}
// What another node's poll delivered after the last step said ENOENT was not seen and stays.
void end_poll(ibv_cq_ex* ex) {
  const std::lock_guard guard(lock);
  auto* cq = reinterpret_cast<FakeCq*>(ex);
  if (cq->shows) cq->done.pop_front();
  cq->shows = false;
}

ibv_cq_ex* create_cq_ex(ibv_context* context, ibv_cq_init_attr_ex* wanted) {
  auto* cq = new FakeCq{};
  faults().cqe = wanted->cqe;
  cq->ex.context = context;
  cq->ex.start_poll = start_poll;
  cq->ex.next_poll = next_poll;
  cq->ex.end_poll = end_poll;
  cq->ex.read_byte_len = [](ibv_cq_ex* ex) {
    const std::lock_guard guard(lock);  // another node's poll delivers to this queue
    return reinterpret_cast<FakeCq*>(ex)->done.front().bytes;
  };
  cq->ex.read_qp_num = [](ibv_cq_ex* ex) {
    const std::lock_guard guard(lock);  // another node's poll delivers to this queue
    return reinterpret_cast<FakeCq*>(ex)->done.front().qpn;
  };
  cq->ex.read_completion_wallclock_ns = [](ibv_cq_ex* ex) {
    const std::lock_guard guard(lock);  // another node's poll delivers to this queue
    return reinterpret_cast<FakeCq*>(ex)->done.front().time_ns;
  };
  return &cq->ex;
}

int limit_rate(ibv_qp* qp, ibv_qp_rate_limit_attr* wanted) {
  const std::lock_guard guard(lock);
  auto& self = *reinterpret_cast<FakeQp*>(qp);
  emulated_ns += the_faults.admit_ns;
  the_faults.burst = wanted->max_burst_sz;
  const std::uint64_t limit = the_faults.admit_kbps;
  if (limit != 0 && booked_kbps + wanted->rate_limit > limit) {
    self.rejected_by = 5;
    return EBUSY;
  }
  self.kbps = wanted->rate_limit;
  booked_kbps += self.kbps;
  return 0;
}

int query_port(ibv_context* context, std::uint8_t, ibv_port_attr* port, std::size_t) {
  port->lid = static_cast<std::uint16_t>(context->num_comp_vectors);
  port->active_mtu = IBV_MTU_2048;
  return 0;
}

int query_device(ibv_context*, const ibv_query_device_ex_input*, ibv_device_attr_ex* attributes,
                 std::size_t) {
  attributes->hca_core_clock = 1'000'000;  // kHz: a tick is a nanosecond
  return 0;
}

}  // namespace

void Faults::clear() {
  corrupt_every = behead_every = lose_every = double_every = outstanding_max = late_every = 0;
  admit_kbps = admit_ns = 0;
  delay_ns = 20'000;
  dead = false;
  at_message = {0, nullptr};
  messages = 0;
}
Faults& faults() { return the_faults; }

}  // namespace tools::fake

using tools::fake::FakeQp;

extern "C" {
ibv_device** ibv_get_device_list(int* count) {
  *count = 1;
  std::memcpy(tools::fake::the_device.name, "fake0", 6);
  return new ibv_device* [2] { &tools::fake::the_device, nullptr };
}
void ibv_free_device_list(ibv_device** list) { delete[] list; }
const char* ibv_get_device_name(ibv_device* device) { return device->name; }
ibv_context* ibv_open_device(ibv_device* device) {
  const std::lock_guard guard(tools::fake::lock);
  auto* all = new verbs_context{};
  all->sz = sizeof(verbs_context);
  all->query_port = tools::fake::query_port;
  all->query_device_ex = tools::fake::query_device;
  all->create_cq_ex = tools::fake::create_cq_ex;
  all->modify_qp_rate_limit = tools::fake::limit_rate;
  all->context.device = device;
  all->context.async_fd = -1;
  all->context.abi_compat = __VERBS_ABI_IS_EXTENDED;
  all->context.num_comp_vectors = tools::fake::next_lid++;  // the LID, as good a place as any
  tools::fake::polled[&all->context] = false;
  all->context.ops.post_send = tools::fake::post_send;
  all->context.ops.post_recv = tools::fake::post_recv;
  return &all->context;
}
int ibv_close_device(ibv_context* context) {
  const std::lock_guard guard(tools::fake::lock);
  tools::fake::polled.erase(context);
  delete verbs_get_ctx(context);
  return 0;
}
ibv_pd* ibv_alloc_pd(ibv_context* context) { return new ibv_pd{.context = context, .handle = 0}; }
int ibv_dealloc_pd(ibv_pd* pd) {
  delete pd;
  return 0;
}
#undef ibv_reg_mr
ibv_mr* ibv_reg_mr(ibv_pd* pd, void* address, std::size_t length, int) {
  return new ibv_mr{.context = pd->context,
                    .pd = pd,
                    .addr = address,
                    .length = length,
                    .handle = 0,
                    .lkey = 1,
                    .rkey = 1};
}
ibv_mr* ibv_reg_mr_iova2(ibv_pd* pd, void* address, std::size_t length, std::uint64_t,
                         unsigned access) {
  return ibv_reg_mr(pd, address, length, static_cast<int>(access));
}
int ibv_dereg_mr(ibv_mr* mr) {
  delete mr;
  return 0;
}
int ibv_destroy_cq(ibv_cq* cq) {
  delete reinterpret_cast<tools::fake::FakeCq*>(cq);
  return 0;
}
ibv_qp* ibv_create_qp(ibv_pd* pd, ibv_qp_init_attr* wanted) {
  const std::lock_guard guard(tools::fake::lock);
  auto* qp = new FakeQp{};
  qp->type = wanted->qp_type;
  qp->rejected_by = -1;
  qp->qp.context = pd->context;
  qp->qp.qp_num = tools::fake::next_qpn++;
  qp->qp.send_cq = wanted->send_cq;
  qp->qp.recv_cq = wanted->recv_cq;
  tools::fake::qps[qp->qp.qp_num] = qp;
  return &qp->qp;
}
int ibv_modify_qp(ibv_qp* qp, ibv_qp_attr* attributes, int mask) {
  if ((mask & IBV_QP_DEST_QPN) != 0) {
    reinterpret_cast<FakeQp*>(qp)->dest_qpn = attributes->dest_qp_num;
  }
  return 0;
}
int ibv_destroy_qp(ibv_qp* qp) {
  const std::lock_guard guard(tools::fake::lock);
  auto* self = reinterpret_cast<FakeQp*>(qp);
  tools::fake::booked_kbps -= self->kbps;
  tools::fake::qps.erase(qp->qp_num);
  delete self;
  return 0;
}
ibv_ah* ibv_create_ah(ibv_pd* pd, ibv_ah_attr*) { return new ibv_ah{pd->context, pd, 0}; }
int ibv_destroy_ah(ibv_ah* ah) {
  delete ah;
  return 0;
}
int flitnet_set_launch(ibv_qp* qp, std::uint64_t launch_ns, std::uint32_t span_ns) {
  const std::lock_guard guard(tools::fake::lock);
  reinterpret_cast<FakeQp*>(qp)->launch_ns = launch_ns;
  reinterpret_cast<FakeQp*>(qp)->span_ns = span_ns;
  return 0;
}
std::uint64_t flitnet_now(ibv_context*) { return tools::fake::now_ns(); }
int flitnet_rejected_by(ibv_qp* qp) { return reinterpret_cast<FakeQp*>(qp)->rejected_by; }
}
