// Protection domains, memory regions, completion queues: made, checked, destroyed. Off the
// datapath; allocation is allowed here and in queue_pair.cc, nowhere else.
#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <new>

#include "emu/base/check.h"
#include "hca/host/state.h"

namespace hca {

namespace {

using emu::kClassCount;

// IBV_REREG_MR_*.
constexpr std::uint32_t kReregTranslation = 1;
constexpr std::uint32_t kReregPd = 2;
constexpr std::uint32_t kReregAccess = 4;

constexpr std::uint32_t kAccessKnown = 0xff | 1u << 20;  // the high one: relaxed ordering, a hint

template <class T>
std::vector<std::uint32_t> free_list(const std::vector<T>& table, std::uint32_t first) {
  std::vector<std::uint32_t> list;
  for (auto i = static_cast<std::uint32_t>(table.size()); i-- > first;) list.push_back(i);
  return list;
}

bool client_open(const HostState& s, ClientId client) {
  return client < s.clients_.size() && s.clients_[client].open;
}

Mr* find_mr(HostState& s, ClientId client, std::uint32_t key) {
  const std::uint32_t slot = mr_slot(key);
  if (key == 0 || slot >= s.mrs_.size()) return nullptr;
  Mr& mr = s.mrs_[slot];
  return mr.key == key && mr.client == client && mr.kind == MrKind::region ? &mr : nullptr;
}

int check_spec(const MrSpec& spec) {
  const bool everything = spec.address == 0 && spec.length == ~std::uint64_t{0};  // implicit ODP
  if (spec.length > kMaxMrBytes && !everything) return EINVAL;
  if (spec.address + spec.length < spec.address || spec.iova + spec.length < spec.iova) {
    return EINVAL;
  }
  if ((spec.access & ~kAccessKnown) != 0) return EINVAL;
  // IBA 10.6.3.1: who lets others write must be allowed to write.
  const bool remote = (spec.access & (kAccessRemoteWrite | kAccessRemoteAtomic)) != 0;
  return remote && (spec.access & kAccessLocalWrite) == 0 ? EINVAL : 0;
}

// Slots are taken in turn with a new generation, so an old key stays wrong for long.
std::uint32_t next_key(std::uint32_t slot, Mr& mr) { return slot << 8 | ++mr.generation; }

double power_budget_pj(const HostOptions& options) {
  return options.power_window_packets * options.packet_to_farthest_pj();
}

double power_pj_per_cycle(const HostOptions& options) {
  return options.power_w * static_cast<double>(options.cycle_time.cycle_ps);
}

// The part of this HCA's power that best effort may have, and the budget that goes with it.
double class_pj_per_cycle(const HostOptions& options) {
  return power_pj_per_cycle(options) * options.best_effort_power_share;
}
double class_budget_pj(const HostOptions& options) {
  return best_effort_budget_pj(options.packet_to_farthest_pj(), options.power_window_packets,
                               class_pj_per_cycle(options));
}

emu::Cycle pay_cycles(double budget_pj, double pj_per_cycle) {
  return pj_per_cycle > 0 ? static_cast<emu::Cycle>(budget_pj / pj_per_cycle) + 1 : 1;
}

void write_cq_header(const Cq& cq) {
  auto* page = new (cq.region) CqPage{};
  page->magic = kCqMagic;
  page->version = kAbiVersion;
  page->cq_num = cq.number;
  page->depth = cq.depth;
}

std::uint32_t posted_sends(const HostState& s, std::uint32_t cq) {
  std::uint32_t posted = 0;
  for (const auto& qp : s.qps_) {
    if (qp == nullptr || qp->send_cq != cq) continue;
    const std::uint32_t mine = qp->page->sq_tail.load(std::memory_order_acquire) - qp->sq_done;
    posted += std::min(mine, qp->layout.sq_depth);  // the program's word, so within limits only
  }
  return posted;
}

}  // namespace

Pd* find_pd(HostState& s, ClientId client, std::uint32_t pd) {
  if (pd >= s.pds_.size() || !s.pds_[pd].used || s.pds_[pd].client != client) return nullptr;
  return &s.pds_[pd];
}

Cq* find_cq(HostState& s, ClientId client, std::uint32_t cq) {
  if (cq >= s.cqs_.size() || !s.cqs_[cq].used || s.cqs_[cq].client != client) return nullptr;
  return &s.cqs_[cq];
}

void free_mr(HostState& s, Mr& mr) {
  --s.pds_[mr.pd].users;
  const std::uint8_t generation = mr.generation;
  const std::uint32_t slot = mr_slot(mr.key);
  mr = {};
  mr.generation = generation;
  s.free_mrs_.push_back(slot);
}

HostState::HostState(const HostOptions& options, Memory& memory, PacketPort& port,
                     HostEvents& events)
    : options_(options),
      memory_(memory),
      port_(port),
      events_(events),
      prng_(options.seed * 0x9e3779b97f4a7c15ULL + options.node),
      horizon_cycles_(options.cycle_time.cycle_at(emu::EmuNs{options.launch_horizon_us} * 1000)),
      power_pj_per_cycle_(power_pj_per_cycle(options)),
      power_cycles_(pay_cycles(power_budget_pj(options), power_pj_per_cycle_)),
      class_power_cycles_(pay_cycles(class_budget_pj(options), class_pj_per_cycle(options))),
      qps_(std::min(options.qps_max, kQpSlots)),
      mrs_(options.mrs_max),
      wakes_(std::min(options.qps_max, kQpSlots)),
      slots_(port.slots()),
      power_budget_pj_(power_budget_pj(options)),
      // What leaves at the horizon holds its energy beyond it.
      calendar_(power_budget_pj_, horizon_cycles_ + std::max(power_cycles_, class_power_cycles_)),
      best_effort_calendar_(class_budget_pj(options), horizon_cycles_ + class_power_cycles_),
      cqs_(options.cqs_max),
      srqs_(std::min(options.srqs_max, kMaxSrq + 1)),
      xrc_domains_(options.xrcds_max),
      xrc_handles_(options.xrcds_max),
      loop_bytes_(kLoopPackets * emu::kPacketBytesMax),
      clients_(options.clients_max),
      pds_(options.pds_max),
      qp_generations_(qps_.size()) {
  for (const std::uint16_t lanes : options.lanes_of_sl) CHECK(lanes != 0);
  choose_congestion(*this);
  free_qps_ = free_list(qps_, 2);  // 0 and 1 are the management QPs of IBA
  for (std::uint32_t slot = 1; slot < mrs_.size(); ++slot) {  // key 0 is never valid
    free_mrs_.push_back(slot);
  }
  for (std::uint32_t cq = 0; cq < cqs_.size(); ++cq) free_cqs_.push_back(cq);
  free_srqs_ = free_list(srqs_, 1);  // 0 is what a program that names none says (XRC)
  free_pds_ = free_list(pds_, 0);
  admission_.connections.resize(qps_.size());
  admission_.next_id = options.first_connection;
  admission_.free_connections = free_list(admission_.connections, 0);
  admission_.probing.reserve(qps_.size());
  admission_.outbox.resize(std::bit_ceil(2 * qps_.size()));
}

Host::Host(const HostOptions& options, Memory& memory, PacketPort& port, HostEvents& events)
    : state_(std::make_unique<HostState>(options, memory, port, events)) {}
Host::~Host() = default;

OrErrno<ClientId> Host::open_client(DoorbellPage* doorbells) {
  HostState& s = *state_;
  for (ClientId client = 0; client < s.clients_.size(); ++client) {
    if (s.clients_[client].open) continue;
    doorbells->magic = kDoorbellMagic;
    doorbells->version = kAbiVersion;
    doorbells->entries = kDoorbellEntries;
    s.clients_[client] = {true, doorbells, 0};
    return client;
  }
  return std::unexpected(EAGAIN);
}

void Host::close_client(ClientId client) {
  HostState& s = *state_;
  if (!client_open(s, client)) return;
  for (auto& qp : s.qps_) {
    if (qp == nullptr || !owns(*qp, client)) continue;
    if (qp->type != QpType::xrc_recv || let_go(s, *qp, client, kNone)) free_qp(s, *qp);
  }
  for (Mr& mr : s.mrs_) {  // windows and regions of one owner: none outlives the other
    if (mr.key != 0 && mr.client == client) free_mr(s, mr);
  }
  for (std::uint32_t srq = 0; srq < s.srqs_.size(); ++srq) {
    if (s.srqs_[srq].used && s.srqs_[srq].client == client) destroy_srq(client, srq);
  }
  for (std::uint32_t cq = 0; cq < s.cqs_.size(); ++cq) {
    if (s.cqs_[cq].used && s.cqs_[cq].client == client) destroy_cq(client, cq);
  }
  for (std::uint32_t xrcd = 0; xrcd < s.xrc_handles_.size(); ++xrcd) {
    if (find_xrcd(s, client, xrcd) != nullptr) close_xrcd(client, xrcd);
  }
  for (std::uint32_t pd = 0; pd < s.pds_.size(); ++pd) {
    if (s.pds_[pd].used && s.pds_[pd].client == client) destroy_pd(client, pd);
  }
  s.clients_[client] = {};
}

OrErrno<std::uint32_t> Host::create_pd(ClientId client) {
  HostState& s = *state_;
  if (!client_open(s, client)) return std::unexpected(EINVAL);
  if (s.free_pds_.empty()) return std::unexpected(ENOMEM);
  const std::uint32_t pd = s.free_pds_.back();
  s.free_pds_.pop_back();
  s.pds_[pd] = {true, client, 0};
  return pd;
}

int Host::destroy_pd(ClientId client, std::uint32_t pd) {
  HostState& s = *state_;
  const Pd* found = find_pd(s, client, pd);
  if (found == nullptr) return ENOENT;
  if (found->users != 0) return EBUSY;
  s.pds_[pd] = {};
  s.free_pds_.push_back(pd);
  return 0;
}

OrErrno<MrKeys> Host::register_mr(ClientId client, std::uint32_t pd, const MrSpec& spec) {
  HostState& s = *state_;
  Pd* found = find_pd(s, client, pd);
  if (found == nullptr) return std::unexpected(ENOENT);
  if (const int error = check_spec(spec)) return std::unexpected(error);
  if (s.free_mrs_.empty()) return std::unexpected(ENOMEM);
  const std::uint32_t slot = s.free_mrs_.front();
  s.free_mrs_.pop_front();
  Mr& mr = s.mrs_[slot];
  const std::uint32_t key = next_key(slot, mr);
  const std::uint8_t generation = mr.generation;
  mr = {};
  mr.iova = spec.iova;
  mr.length = spec.length;
  mr.address = spec.address;
  mr.mapped = spec.mapped;
  mr.key = key;
  mr.pd = pd;
  mr.access = spec.access;
  mr.client = client;
  mr.generation = generation;
  ++found->users;
  return MrKeys{key, key};
}

OrErrno<MrKeys> Host::reregister_mr(ClientId client, std::uint32_t lkey, std::uint32_t mask,
                                    std::uint32_t pd, const MrSpec& spec) {
  HostState& s = *state_;
  Mr* mr = find_mr(s, client, lkey);
  if (mr == nullptr) return std::unexpected(ENOENT);
  if (mr->windows != 0) return std::unexpected(EBUSY);
  Pd* new_pd = find_pd(s, client, pd);
  if ((mask & kReregPd) != 0 && new_pd == nullptr) return std::unexpected(ENOENT);
  MrSpec wanted{mr->address, mr->iova, mr->length, mr->access, mr->mapped};
  if ((mask & kReregTranslation) != 0) {
    wanted.address = spec.address;
    wanted.iova = spec.iova;
    wanted.length = spec.length;
    wanted.mapped = spec.mapped;
  }
  if ((mask & kReregAccess) != 0) wanted.access = spec.access;
  if (const int error = check_spec(wanted)) return std::unexpected(error);
  if ((mask & kReregTranslation) != 0 && mr->mapped != nullptr) s.port_.bring_home();
  if ((mask & kReregPd) != 0) {
    --s.pds_[mr->pd].users;
    mr->pd = pd;
    ++new_pd->users;
  }
  mr->address = wanted.address;
  mr->iova = wanted.iova;
  mr->length = wanted.length;
  mr->mapped = wanted.mapped;
  mr->access = wanted.access;
  // A key that names other bytes is another key; what else changes is looked up at every use.
  if ((mask & kReregTranslation) != 0) mr->key = next_key(mr_slot(lkey), *mr);
  return MrKeys{mr->key, mr->key};
}

int Host::deregister_mr(ClientId client, std::uint32_t lkey) {
  HostState& s = *state_;
  Mr* mr = find_mr(s, client, lkey);
  if (mr == nullptr) return ENOENT;
  if (mr->windows != 0) return EBUSY;
  settle(s);
  if (mr->mapped != nullptr) s.port_.bring_home();  // that will be unmapped
  free_mr(s, *mr);
  return 0;
}

OrErrno<std::uint32_t> Host::create_cq(ClientId client, std::uint32_t depth,
                                       std::span<std::uint8_t> region) {
  HostState& s = *state_;
  if (!client_open(s, client)) return std::unexpected(EINVAL);
  if (depth == 0 || depth > kMaxCqe || !std::has_single_bit(depth) ||
      region.size() < cq_bytes(depth)) {
    return std::unexpected(EINVAL);
  }
  if (s.free_cqs_.empty()) return std::unexpected(ENOMEM);
  const std::uint32_t number = s.free_cqs_.front();
  s.free_cqs_.pop_front();
  Cq& cq = s.cqs_[number];
  cq = {};
  cq.used = true;
  cq.client = client;
  cq.number = number;
  cq.depth = depth;
  cq.region = region.data();
  cq.page = reinterpret_cast<CqPage*>(region.data());
  write_cq_header(cq);
  return number;
}

int Host::resize_cq(ClientId client, std::uint32_t number, std::uint32_t depth,
                    std::span<std::uint8_t> region) {
  HostState& s = *state_;
  Cq* cq = find_cq(s, client, number);
  if (cq == nullptr) return ENOENT;
  settle(s);
  const std::uint32_t head = cq->page->head.load(std::memory_order_acquire);
  const std::uint32_t waiting = cq->tail - head;
  if (!std::has_single_bit(depth) || depth > kMaxCqe || region.size() < cq_bytes(depth) ||
      waiting > depth || waiting > cq->depth) {
    return EINVAL;
  }
  // Room is kept for what was posted already: it completes into this queue without asking again.
  if (depth < cq->depth && posted_sends(s, number) > depth - waiting) return EBUSY;
  const Cqe* from = reinterpret_cast<const Cqe*>(cq->region + sizeof(CqPage));
  Cqe* to = reinterpret_cast<Cqe*>(region.data() + sizeof(CqPage));
  for (std::uint32_t i = head; i != cq->tail; ++i) {
    to[i & (depth - 1)] = from[i & (cq->depth - 1)];
  }
  const std::uint32_t armed = cq->page->armed.load(std::memory_order_acquire);
  cq->region = region.data();
  cq->page = reinterpret_cast<CqPage*>(region.data());
  cq->depth = depth;
  write_cq_header(*cq);
  cq->page->overrun.store(cq->broken ? 1 : 0);  // who polls the new one hears of it, too
  cq->head = head;
  cq->page->head.store(head);
  cq->page->armed.store(armed);
  cq->page->told.store(cq->tail - waiting);  // what waits may be told again, but not forgotten
  cq->page->solicited.store(cq->solicited_tail, std::memory_order_relaxed);
  cq->page->tail.store(cq->tail, std::memory_order_seq_cst);
  return 0;
}

int Host::destroy_cq(ClientId client, std::uint32_t number) {
  HostState& s = *state_;
  const Cq* cq = find_cq(s, client, number);
  if (cq == nullptr) return ENOENT;
  if (cq->users != 0) return EBUSY;
  settle(s);
  s.cqs_[number] = {};
  s.free_cqs_.push_back(number);
  return 0;
}

}  // namespace hca
