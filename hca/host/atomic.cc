// Atomics (IBA 9.4.5) and atomic writes (IBA 1.5, A19) at the responder: executed once, in the
// order of requests, against all other requests of this HCA. Against the program's own processor
// only where its memory is mapped here (IBV_ATOMIC_HCA promises no more).
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
  write_pieces(s);  // what earlier packets wrote may be what this one reads, or speaks of
  if (range.mapped != nullptr) {
    std::atomic_ref<std::uint64_t> word(*reinterpret_cast<std::uint64_t*>(range.mapped));
    before = word.load();
    while (!word.compare_exchange_weak(before, after(headers, before))) {
    }
    return true;
  }
  std::uint64_t value = 0;
  const MemoryPiece piece{reinterpret_cast<std::uint8_t*>(&value), range.address, sizeof value,
                          range.client};
  if (s.memory_.read({&piece, 1}) != 1) return false;
  before = value;
  value = after(headers, before);
  return s.memory_.write({&piece, 1}) == 1;
}

static_assert(kAtomicBytes == emu::kAtomicWordBytes, "a packet of any connection has room for it");

// The word that a request is for; false: it was refused.
bool find_word(HostState& s, Qp& qp, std::uint32_t psn, std::uint64_t address, std::uint32_t rkey,
               std::uint32_t access, Range& range) {
  if (address % kAtomicBytes != 0) {
    refuse_request(s, qp, psn, RequestFault::alignment, kAtomicBytes, kAtomicBytes, address);
    return false;
  }
  if (resolve(s.mrs_, rkey, qp.pd, address, kAtomicBytes, access, range, qp.number)) return true;
  blame_key(s, qp, TroubleKind::remote_key, {rkey, qp.pd, address, kAtomicBytes, access});
  refuse(s, qp, psn, NakCode::remote_access_error, AsyncEvent::qp_access_err);
  return false;
}

// An iova of its own may be aligned where the memory is not.
bool is_aligned(const Range& range) {
  return reinterpret_cast<std::uintptr_t>(range.mapped) % kAtomicBytes == 0;
}

void memory_fault(HostState& s, Qp& qp, std::uint32_t psn) {
  if (s.memory_.gone(qp.client)) {
    lose_program(s, qp, psn);
    return;
  }
  ++s.counters_.memory_faults;
  blame_remote(s, qp, TroubleKind::remote_memory);
  refuse(s, qp, psn, NakCode::remote_operational_error, AsyncEvent::qp_access_err);
}

bool store(HostState& s, const Range& range, std::uint64_t value) {
  write_pieces(s);  // what earlier packets wrote lies under it, or is what it speaks of
  if (range.mapped != nullptr) {
    std::atomic_ref<std::uint64_t>(*reinterpret_cast<std::uint64_t*>(range.mapped)).store(value);
    return true;
  }
  const MemoryPiece piece{reinterpret_cast<std::uint8_t*>(&value), range.address, sizeof value,
                          range.client};
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
  // The newest: of one a whole circle of PSNs ago the peer has long had its answer.
  for (std::uint32_t i = 1; i <= qp.atomics.size(); ++i) {
    const AtomicResult& result = qp.atomics[(qp.atomics_done - i) % qp.atomics.size()];
    if (result.psn != psn) continue;
    respond_with(s, qp, psn, result.original);
    return;
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
  Range range;
  if (!find_word(s, qp, psn, atomic.address, atomic.rkey, kAccessRemoteAtomic, range)) return;
  std::uint64_t before = 0;
  if (!is_aligned(range) || !execute(s, headers, range, before)) return memory_fault(s, qp, psn);
  qp.epsn = add24(qp.epsn, 1);
  qp.msn = add24(qp.msn, 1);
  qp.atomics[qp.atomics_done++ % qp.atomics.size()] = {psn, before};
  respond_with(s, qp, psn, before);
}

void serve_atomic_write(HostState& s, Qp& qp, const emu::PacketHeaders& headers,
                        const std::uint8_t* bytes, std::uint32_t length) {
  const std::uint32_t psn = headers.bth.psn;
  const emu::Reth& reth = headers.reth;
  if (qp.responses_last - qp.responses_first + 1 >= kResponsesMax) return;  // it will ask again
  if (length != kAtomicBytes || reth.length != kAtomicBytes) {
    refuse_request(s, qp, psn, RequestFault::length, reth.length, kAtomicBytes);
    return;
  }
  Range range;
  if (!find_word(s, qp, psn, reth.address, reth.rkey, kAccessRemoteWrite, range)) return;
  std::uint64_t value = 0;
  std::memcpy(&value, bytes, sizeof value);
  if (!is_aligned(range) || !store(s, range, value)) return memory_fault(s, qp, psn);
  qp.epsn = add24(qp.epsn, 1);
  qp.msn = add24(qp.msn, 1);
  confirm_atomic_write(s, qp, psn, false);
}

// A READ response without data: memory has the word.
void confirm_atomic_write(HostState& s, Qp& qp, std::uint32_t psn, bool repeated) {
  for (std::uint32_t i = qp.responses_first; i != qp.responses_last; ++i) {
    const Response& waiting = qp.response(i);
    if (waiting.kind == ResponseKind::read && waiting.psn == psn) return;  // will come anyway
  }
  if (qp.responses_last - qp.responses_first + 1 >= kResponsesMax) return;  // it will ask again
  Response& response = qp.response(qp.responses_last++);
  response = {};
  response.kind = ResponseKind::read;
  response.repeated = repeated;
  response.psn = psn;
  response.msn = qp.msn;
  want_response(s, qp);
}

}  // namespace hca
