// Atomics at the responder (IBA 9.4.5): executed once, in the order of requests, against all other
// requests of this HCA. Against the program's own processor only where its memory is mapped here
// (IBV_ATOMIC_HCA promises no more).
#include <atomic>
#include <cstring>

#include "hca/host/state.h"

namespace hca {

namespace {

using emu::NakCode;

std::uint64_t after(const emu::PacketHeaders& headers, std::uint64_t before) {
  if (emu::rc_of(headers.bth.opcode) == emu::Opcode::rc_fetch_add)
    return before + headers.atomic.swap_or_add;
  return before == headers.atomic.compare ? headers.atomic.swap_or_add : before;
}

bool execute(HostState& s, const emu::PacketHeaders& headers, const Range& range,
             std::uint64_t& before) {
  if (range.mapped != nullptr) {
    std::atomic_ref<std::uint64_t> word(*reinterpret_cast<std::uint64_t*>(range.mapped));
    before = word.load();
    while (!word.compare_exchange_weak(before, after(headers, before))) {
    }
    return true;
  }
  write_pieces(s);  // what earlier packets wrote may be what this one reads
  std::uint64_t value = 0;
  const MemoryPiece piece{reinterpret_cast<std::uint8_t*>(&value), range.address, sizeof value,
                          range.client};
  if (s.memory_.read({&piece, 1}) != 1) return false;
  before = value;
  value = after(headers, before);
  return s.memory_.write({&piece, 1}) == 1;
}

void respond_with(HostState& s, Qp& qp, std::uint32_t psn, std::uint64_t original) {
  Response& response = qp.response(qp.responses_last++);
  response = {};
  response.kind = ResponseKind::atomic;
  response.address = original;
  response.psn = psn;
  response.msn = qp.msn;
  want_response(s, qp);
}

// It was executed: what it found then is the answer. Not kept any more: the peer has more
// outstanding than was agreed, and gets none.
void repeat(HostState& s, Qp& qp, std::uint32_t psn) {
  for (std::uint32_t i = qp.responses_first; i != qp.responses_last; ++i) {
    const Response& waiting = qp.response(i);
    if (waiting.kind == ResponseKind::atomic && waiting.psn == psn) return;  // will come anyway
  }
  for (const AtomicResult& result : qp.atomics) {
    if (result.psn == psn) respond_with(s, qp, psn, result.original);
  }
}

}  // namespace

void serve_atomic(HostState& s, Qp& qp, const emu::PacketHeaders& headers, bool repeated) {
  const std::uint32_t psn = headers.bth.psn;
  if (qp.responses_last - qp.responses_first + 1 >= kResponsesMax) return;  // it will ask again
  if (repeated) {
    repeat(s, qp, psn);
    return;
  }
  const emu::AtomicEth& atomic = headers.atomic;
  if (atomic.address % kAtomicBytes != 0) {
    refuse(s, qp, psn, NakCode::invalid_request, AsyncEvent::qp_req_err);
    return;
  }
  Range range;
  const bool allowed = (qp.attributes.access_flags & kAccessRemoteAtomic) != 0 &&
                       resolve(s.mrs_, atomic.rkey, qp.pd, atomic.address, kAtomicBytes,
                               kAccessRemoteAtomic, range, qp.number);
  if (!allowed) {
    blame_key(s, qp, TroubleKind::remote_key,
              {atomic.rkey, qp.pd, atomic.address, kAtomicBytes, kAccessRemoteAtomic});
    refuse(s, qp, psn, NakCode::remote_access_error, AsyncEvent::qp_access_err);
    return;
  }
  // An iova of its own may be aligned where the memory is not.
  const bool aligned = reinterpret_cast<std::uintptr_t>(range.mapped) % kAtomicBytes == 0;
  std::uint64_t before = 0;
  if (!aligned || !execute(s, headers, range, before)) {
    if (s.memory_.gone(qp.client)) {
      enter_error(s, qp);
      return;
    }
    ++s.counters_.memory_faults;
    refuse(s, qp, psn, NakCode::remote_operational_error, AsyncEvent::qp_access_err);
    return;
  }
  qp.epsn = add24(qp.epsn, 1);
  qp.msn = add24(qp.msn, 1);
  qp.atomics[qp.atomics_done++ % qp.atomics.size()] = {psn, before};
  respond_with(s, qp, psn, before);
}

}  // namespace hca
