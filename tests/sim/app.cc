#include "tests/sim/app.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "emu/base/check.h"

namespace sim {

namespace {

void put_receive(std::uint8_t* slot, std::uint64_t wr_id, std::span<const hca::Sge> sges) {
  const hca::RecvWqe wqe{wr_id, static_cast<std::uint32_t>(sges.size()), 0};
  std::memcpy(slot, &wqe, sizeof wqe);
  if (!sges.empty()) std::memcpy(slot + sizeof wqe, sges.data(), sges.size_bytes());
}

}  // namespace

bool LocalMemory::gone(hca::ClientId client) const {
  return std::find(ended_.begin(), ended_.end(), client) != ended_.end();
}

bool LocalMemory::there(const hca::MemoryPiece& piece) const {
  if (gone(piece.client)) return false;
  for (const auto& [begin, size] : holes_) {
    if (piece.remote < begin + size && begin < piece.remote + piece.length) return false;
  }
  return true;
}

void LocalMemory::unmap(const void* begin, std::size_t length) {
  holes_.emplace_back(reinterpret_cast<std::uint64_t>(begin), length);
}

std::size_t LocalMemory::read(std::span<const hca::MemoryPiece> pieces) {
  ++calls;
  pieces_seen += pieces.size();
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    if (!there(pieces[i])) return i;
    std::memcpy(pieces[i].local, reinterpret_cast<const void*>(pieces[i].remote), pieces[i].length);
  }
  return pieces.size();
}

std::size_t LocalMemory::write(std::span<const hca::MemoryPiece> pieces) {
  if (on_write) on_write(pieces);
  ++calls;
  pieces_seen += pieces.size();
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    if (!there(pieces[i])) return i;
    std::memcpy(reinterpret_cast<void*>(pieces[i].remote), pieces[i].local, pieces[i].length);
  }
  return pieces.size();
}

// The pages have 64-byte members.
std::uint8_t* App::ring_memory(std::size_t bytes) {
  rings_.push_back(std::make_unique<std::uint64_t[]>(bytes / 8 + 16));
  const auto address = reinterpret_cast<std::uintptr_t>(rings_.back().get());
  return reinterpret_cast<std::uint8_t*>((address + 63) & ~std::uintptr_t{63});
}

App::App(hca::Host& host) : host_(host), doorbells_(std::make_unique<hca::DoorbellPage>()) {
  const auto client = host_.open_client(doorbells_.get());
  CHECK(client.has_value());
  client_ = *client;
  const auto pd = host_.create_pd(client_);
  CHECK(pd.has_value());
  pd_ = *pd;
}

App::~App() { host_.close_client(client_); }

hca::MrKeys App::reg(void* bytes, std::size_t length, std::uint32_t access, bool mapped) {
  const auto address = reinterpret_cast<std::uint64_t>(bytes);
  const auto keys = host_.register_mr(
      client_, pd_,
      {address, address, length, access, mapped ? static_cast<std::uint8_t*>(bytes) : nullptr});
  CHECK(keys.has_value());
  return *keys;
}

Completions App::make_cq(std::uint32_t depth) {
  Completions cq;
  const std::size_t bytes = hca::cq_bytes(depth);
  std::uint8_t* region = ring_memory(bytes);
  const auto number = host_.create_cq(client_, depth, {region, bytes});
  CHECK(number.has_value());
  cq.number = *number;
  cq.page = reinterpret_cast<hca::CqPage*>(region);
  cq.depth = depth;
  return cq;
}

Queue App::make_qp(hca::QpType type, const Completions& send_cq, const Completions& recv_cq,
                   const hca::QpCapacity& capacity, bool signal_all, std::uint32_t srq) {
  return make_qp({pd_, send_cq.number, recv_cq.number, type, signal_all, capacity, srq});
}

Queue App::make_xrc_recv(std::uint32_t xrcd) {
  hca::QpSpec spec;
  spec.type = hca::QpType::xrc_recv;
  spec.capacity = {0, 0, 1, 1, 0};
  spec.xrcd = xrcd;
  return make_qp(spec);
}

Queue App::make_qp(const hca::QpSpec& spec) {
  Queue queue;
  queue.type = spec.type;
  queue.capacity = spec.capacity;
  queue.layout = hca::qp_layout(spec.capacity);
  queue.region = ring_memory(queue.layout.bytes);
  const auto number = host_.create_qp(client_, spec, {queue.region, queue.layout.bytes});
  CHECK(number.has_value());
  queue.number = *number;
  queue.page = reinterpret_cast<hca::QpPage*>(queue.region);
  return queue;
}

Shared App::make_srq(std::uint32_t max_wr, std::uint32_t max_sge, std::uint32_t limit) {
  return make_srq({pd_, max_wr, max_sge, limit});
}

Shared App::make_xrc_srq(std::uint32_t xrcd, const Completions& cq, std::uint32_t max_wr) {
  return make_srq({pd_, max_wr, 1, 0, true, xrcd, cq.number});
}

Shared App::make_srq(const hca::SrqSpec& spec) {
  Shared srq;
  srq.layout = hca::srq_layout(spec.max_wr, spec.max_sge);
  srq.region = ring_memory(srq.layout.bytes);
  const auto number = host_.create_srq(client_, spec, {srq.region, srq.layout.bytes});
  CHECK(number.has_value());
  srq.number = *number;
  srq.page = reinterpret_cast<hca::SrqPage*>(srq.region);
  return srq;
}

int App::post_shared(Shared& srq, std::uint64_t wr_id, std::span<const hca::Sge> sges) {
  const std::uint32_t tail = srq.page->tail.load(std::memory_order_relaxed);
  if (tail - srq.page->head.load(std::memory_order_acquire) >= srq.layout.depth) return ENOMEM;
  put_receive(srq.region + sizeof(hca::SrqPage) +
                  std::size_t{tail & (srq.layout.depth - 1)} * srq.layout.stride,
              wr_id, sges);
  srq.page->tail.store(tail + 1, std::memory_order_release);
  return 0;
}

int App::modify(const Queue& queue, hca::QpAttributes attributes, std::uint32_t mask,
                emu::Cycle now) {
  return host_.modify_qp(client_, queue.number, attributes, mask, now);
}

int App::connect(const Queue& queue, const Path& path, emu::Cycle now) {
  hca::QpAttributes a{};
  a.port_num = 1;
  a.access_flags = path.access;
  a.path_mtu = path.mtu;
  a.dest_qp_num = path.dest_qpn;
  a.rq_psn = path.recv_psn;
  a.sq_psn = path.send_psn;
  a.max_rd_atomic = path.reads;
  a.max_dest_rd_atomic = path.reads_served;
  a.min_rnr_timer = path.min_rnr_timer;
  a.timeout = path.timeout;
  a.retry_cnt = path.retry_cnt;
  a.rnr_retry = path.rnr_retry;
  a.av.dlid = emu::lid_of(path.dest);
  a.av.sl = path.sl;
  a.av.port_num = 1;
  a.av.is_global = path.global ? 1 : 0;
  a.state = hca::QpState::init;
  if (int e = modify(queue, a,
                     hca::kQpState | hca::kQpPkeyIndex | hca::kQpPort | hca::kQpAccessFlags, now)) {
    return e;
  }
  a.state = hca::QpState::rtr;
  const bool responds = queue.type == hca::QpType::rc || queue.type == hca::QpType::xrc_recv;
  const bool requests = queue.type == hca::QpType::rc || queue.type == hca::QpType::xrc_send;
  std::uint32_t mask =
      hca::kQpState | hca::kQpAv | hca::kQpPathMtu | hca::kQpDestQpn | hca::kQpRqPsn;
  if (responds) mask |= hca::kQpMaxDestRdAtomic | hca::kQpMinRnrTimer;
  if (int e = modify(queue, a, mask, now)) return e;
  a.state = hca::QpState::rts;
  mask = hca::kQpState | hca::kQpSqPsn;
  if (queue.type == hca::QpType::xrc_recv) mask |= hca::kQpTimeout;
  if (requests) {
    mask |= hca::kQpTimeout | hca::kQpRetryCnt | hca::kQpRnrRetry | hca::kQpMaxQpRdAtomic;
  }
  return modify(queue, a, mask, now);
}

int App::ready_ud(const Queue& queue, std::uint32_t qkey, emu::Cycle now) {
  hca::QpAttributes a{};
  a.port_num = 1;
  a.qkey = qkey;
  a.state = hca::QpState::init;
  if (int e =
          modify(queue, a, hca::kQpState | hca::kQpPkeyIndex | hca::kQpPort | hca::kQpQkey, now)) {
    return e;
  }
  a.state = hca::QpState::rtr;
  if (int e = modify(queue, a, hca::kQpState, now)) return e;
  a.state = hca::QpState::rts;
  return modify(queue, a, hca::kQpState | hca::kQpSqPsn, now);
}

int App::post(Queue& queue, const Send& send) {
  const std::uint32_t tail = queue.page->sq_tail.load(std::memory_order_relaxed);
  if (tail - queue.page->sq_head.load(std::memory_order_acquire) >= queue.layout.sq_depth) {
    return ENOMEM;
  }
  std::uint64_t length = send.inline_bytes.size();
  for (const hca::Sge& sge : send.sges) length += sge.length;
  const std::uint32_t payload = queue.page->packet_payload.load(std::memory_order_acquire);
  const std::uint32_t packets = hca::packets_of(send.opcode, length, payload);
  if (queue.page->credit_limited.load(std::memory_order_acquire) != 0) {
    const std::uint32_t granted = queue.page->credit_granted.load(std::memory_order_acquire);
    if (packets > granted - queue.credit_used) return ENOMEM;
  }
  queue.credit_used += packets;

  hca::SendWqe wqe{};
  wqe.wr_id = send.wr_id;
  wqe.remote_addr = send.remote_addr;
  wqe.launch_ns = send.launch_ns;
  wqe.launch_span_ns = send.launch_span_ns;
  wqe.xrc_srqn = send.xrc_srqn;
  wqe.rkey = send.rkey;
  wqe.imm = send.imm;
  wqe.remote_qpn = send.remote_qpn;
  wqe.remote_qkey = send.remote_qkey;
  wqe.dlid = send.dlid;
  wqe.sl = send.sl;
  wqe.opcode = send.opcode;
  wqe.flags = send.flags;
  wqe.num_sge = static_cast<std::uint8_t>(send.sges.size());
  std::uint8_t* slot = queue.region + queue.layout.sq_offset +
                       std::size_t{tail & (queue.layout.sq_depth - 1)} * queue.layout.sq_stride;
  if (!send.inline_bytes.empty()) {
    wqe.flags |= hca::kWqeInline;
    wqe.inline_length = static_cast<std::uint32_t>(send.inline_bytes.size());
    std::memcpy(slot + sizeof wqe, send.inline_bytes.data(), send.inline_bytes.size());
  } else if (send.extension != nullptr) {
    wqe.flags |= hca::kWqeExtended;
    std::memcpy(slot + sizeof wqe, send.extension, sizeof *send.extension);
    std::copy(send.sges.begin(), send.sges.end(),
              reinterpret_cast<hca::Sge*>(slot + sizeof wqe + sizeof *send.extension));
  } else if (hca::is_atomic(send.opcode) || send.opcode == hca::WrOpcode::atomic_write) {
    wqe.flags |= hca::kWqeExtended;
    hca::WqeExtension operands{};
    operands.compare_add = send.compare_add;
    operands.swap = send.swap;
    std::memcpy(slot + sizeof wqe, &operands, sizeof operands);
    std::memcpy(slot + sizeof wqe + sizeof operands, send.sges.data(), send.sges.size_bytes());
  } else if (!send.sges.empty()) {
    std::memcpy(slot + sizeof wqe, send.sges.data(), send.sges.size_bytes());
  }
  std::memcpy(slot, &wqe, sizeof wqe);
  queue.page->sq_tail.store(tail + 1, std::memory_order_seq_cst);
  if (queue.page->rung.exchange(1) == 0) {
    const std::uint32_t bell = doorbells_->tail.load(std::memory_order_relaxed);
    doorbells_->qp_num[bell % hca::kDoorbellEntries] = queue.number;
    doorbells_->tail.store(bell + 1, std::memory_order_release);
  }
  return 0;
}

int App::post_recv(Queue& queue, std::uint64_t wr_id, std::span<const hca::Sge> sges) {
  const std::uint32_t tail = queue.page->rq_tail.load(std::memory_order_relaxed);
  if (tail - queue.page->rq_head.load(std::memory_order_acquire) >= queue.layout.rq_depth) {
    return ENOMEM;
  }
  put_receive(queue.region + queue.layout.rq_offset +
                  std::size_t{tail & (queue.layout.rq_depth - 1)} * queue.layout.rq_stride,
              wr_id, sges);
  queue.page->rq_tail.store(tail + 1, std::memory_order_seq_cst);
  return 0;
}

bool App::poll(Completions& cq, hca::Cqe& cqe) {
  const std::uint32_t head = cq.page->head.load(std::memory_order_relaxed);
  if (head == cq.page->tail.load(std::memory_order_acquire)) return false;
  const auto* cqes = reinterpret_cast<const hca::Cqe*>(
      reinterpret_cast<const std::uint8_t*>(cq.page) + sizeof(hca::CqPage));
  cqe = cqes[head & (cq.depth - 1)];
  cq.page->head.store(head + 1, std::memory_order_release);
  return true;
}

}  // namespace sim
