// Shared memory between an application and its hcad: one memfd per QP, per CQ and per process. hcad
// creates and sizes them; the application maps what it is handed. All indexes run free (no wrap)
// and are masked at use. One writer per word; who it is stands above the group. hcad never trusts a
// word that the application writes: an impossible index makes that QP or CQ fail, nothing else.
//
// A group is a cache line: what one core writes with each message and what the other only looks at
// are apart, or each look would fetch a line anew that nobody has changed where it looks.
#pragma once

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "hca/abi/cqe.h"
#include "hca/abi/limits.h"
#include "hca/abi/wqe.h"

namespace hca {

using Shared32 = std::atomic<std::uint32_t>;
using Shared64 = std::atomic<std::uint64_t>;
static_assert(Shared32::is_always_lock_free && sizeof(Shared32) == 4);
static_assert(Shared64::is_always_lock_free && sizeof(Shared64) == 8);

inline constexpr std::uint32_t kQpMagic = 0x50514c46;        // "FLQP"
inline constexpr std::uint32_t kSrqMagic = 0x51534c46;       // "FLSQ"
inline constexpr std::uint32_t kCqMagic = 0x51434c46;        // "FLCQ"
inline constexpr std::uint32_t kDoorbellMagic = 0x42444c46;  // "FLDB"

// ---- QP: QpPage, then the send slots, then the receive slots ------------------------------------

struct QpPage {
  // hcad writes, once, before the application maps the page.
  std::uint32_t magic;
  std::uint32_t version;
  std::uint32_t qp_num;
  std::uint32_t sq_depth;    // power of two
  std::uint32_t sq_stride;   // bytes
  std::uint32_t rq_depth;    // power of two, 0 with an SRQ
  std::uint32_t rq_stride;   // bytes
  std::uint32_t sq_offset;   // from the start of the page
  std::uint32_t rq_offset;   //
  std::uint32_t max_inline;  // bytes granted
  std::uint32_t max_sge_send;
  std::uint32_t max_sge_recv;
  std::uint32_t reserved0[4];
  // The application writes.
  alignas(64) Shared32 sq_tail;  // posted; release after the slot is written
  Shared32 rung;                 // set to 1 before its QP number enters the doorbell ring
  Shared32 rq_tail;              // posted receives
  std::uint32_t reserved1[13];
  // hcad writes, and each post reads.
  alignas(64) Shared32 credit_limited;  // 1: it needs credit, else ENOMEM (admitted rate)
  Shared32 credit_granted;              // packets granted since creation, free running
  Shared32 packet_payload;              // bytes of payload per packet on this path, set at RTR
  Shared32 state;                       // IBV_QPS_*, a hint: posts in RESET are refused
  std::uint32_t reserved2[12];
  // hcad writes with each completion.
  alignas(64) Shared32 sq_head;  // requests that are done
  Shared32 rq_head;              //
  std::uint32_t reserved3[14];
};
static_assert(sizeof(QpPage) == 256 && offsetof(QpPage, sq_tail) == 64 &&
              offsetof(QpPage, rung) == 68 && offsetof(QpPage, rq_tail) == 72 &&
              offsetof(QpPage, credit_limited) == 128 && offsetof(QpPage, credit_granted) == 132 &&
              offsetof(QpPage, packet_payload) == 136 && offsetof(QpPage, state) == 140 &&
              offsetof(QpPage, sq_head) == 192 && offsetof(QpPage, rq_head) == 196);

// The application's order for one post:
//   1. sq_tail - (Cqe::done of the last completion that it polled) < sq_depth, else ENOMEM
//   2. with credit_limited: packets needed <= credit_granted - (its own count of used), else ENOMEM
//   3. write the slot; sq_tail.store(+1, release)
//   4. if (rung.exchange(1, seq_cst) == 0) push qp_num into the doorbell ring
// hcad's: pop; rung.store(0, seq_cst); read sq_tail (acquire). So no post is overlooked and the
// ring holds each QP at most once.

struct QpCapacity {
  std::uint32_t send_wr = 1;
  std::uint32_t recv_wr = 1;
  std::uint32_t send_sge = 1;
  std::uint32_t recv_sge = 1;
  std::uint32_t inline_bytes = 0;
  friend bool operator==(const QpCapacity&, const QpCapacity&) = default;
};

struct QpLayout {
  std::uint32_t sq_depth;
  std::uint32_t sq_stride;
  std::uint32_t rq_depth;
  std::uint32_t rq_stride;
  std::uint32_t sq_offset;
  std::uint32_t rq_offset;
  std::uint32_t bytes;  // of the whole region
};

constexpr std::uint32_t round_up(std::uint32_t value, std::uint32_t step) {
  return (value + step - 1) / step * step;
}

// Capacities must be within hca/abi/limits.h; both sides compute the same.
constexpr QpLayout qp_layout(const QpCapacity& capacity) {
  QpLayout layout{};
  const auto sges = static_cast<std::uint32_t>(sizeof(Sge)) * capacity.send_sge;
  const std::uint32_t payload = sges > capacity.inline_bytes ? sges : capacity.inline_bytes;
  layout.sq_depth = capacity.send_wr == 0 ? 0 : std::bit_ceil(capacity.send_wr);
  layout.rq_depth = capacity.recv_wr == 0 ? 0 : std::bit_ceil(capacity.recv_wr);
  layout.sq_stride =
      round_up(static_cast<std::uint32_t>(sizeof(SendWqe) + sizeof(WqeExtension)) + payload, 64);
  layout.rq_stride = static_cast<std::uint32_t>(sizeof(RecvWqe) + sizeof(Sge) * capacity.recv_sge);
  layout.sq_offset = sizeof(QpPage);
  layout.rq_offset = layout.sq_offset + layout.sq_depth * layout.sq_stride;
  layout.bytes = layout.rq_offset + layout.rq_depth * layout.rq_stride;
  return layout;
}

// ---- SRQ: SrqPage, then the receive slots -------------------------------------------------------

struct SrqPage {
  // hcad writes, once.
  std::uint32_t magic;
  std::uint32_t version;
  std::uint32_t srq_num;
  std::uint32_t depth;    // power of two
  std::uint32_t stride;   // bytes
  std::uint32_t max_sge;  // granted
  std::uint32_t reserved0[10];
  // The application writes.
  alignas(64) Shared32 tail;  // posted; release after the slot is written. No doorbell
  std::uint32_t reserved1[15];
  // hcad writes.
  alignas(64) Shared32 head;  // taken: hcad has copied them, the application may reuse the slots
  std::uint32_t reserved2[15];
};
static_assert(sizeof(SrqPage) == 192 && offsetof(SrqPage, tail) == 64 &&
              offsetof(SrqPage, head) == 128);

struct SrqLayout {
  std::uint32_t depth;
  std::uint32_t stride;
  std::uint32_t bytes;  // of the whole region
};
// Capacities must be within hca/abi/limits.h; both sides compute the same.
constexpr SrqLayout srq_layout(std::uint32_t max_wr, std::uint32_t max_sge) {
  SrqLayout layout{};
  layout.depth = std::bit_ceil(max_wr);
  layout.stride = static_cast<std::uint32_t>(sizeof(RecvWqe) + sizeof(Sge) * max_sge);
  layout.bytes = static_cast<std::uint32_t>(sizeof(SrqPage)) + layout.depth * layout.stride;
  return layout;
}

// ---- CQ: CqPage, then the CQEs ------------------------------------------------------------------

inline constexpr std::uint32_t kCqDisarmed = 0;
inline constexpr std::uint32_t kCqArmedNext = 1;
inline constexpr std::uint32_t kCqArmedSolicited = 2;

struct CqPage {
  // hcad writes, once.
  std::uint32_t magic;
  std::uint32_t version;
  std::uint32_t cq_num;
  std::uint32_t depth;  // power of two
  std::uint32_t reserved0[12];
  // The application writes with each poll; hcad looks when the ring seems full.
  alignas(64) Shared32 head;  // consumed
  std::uint32_t reserved1[15];
  // The application writes before it sleeps (hcad disarms); hcad looks with each completion.
  alignas(64) Shared32 armed;  // kCqArmed…; then look at tail again before sleeping
  Shared32 sleepers;           // threads in a futex wait on `tail`
  std::uint32_t reserved2[14];
  // hcad writes.
  alignas(64) Shared32 tail;  // produced; release after the CQE; the futex word
  Shared32 overrun;           // 1: a completion found no room; the CQ is in error
  Shared32 told;              // the tail when a completion event last fired
  Shared32 solicited;         // the tail after the last completion that was solicited, or an error
  std::uint32_t reserved3[12];
};
static_assert(sizeof(CqPage) == 256 && offsetof(CqPage, head) == 64 &&
              offsetof(CqPage, armed) == 128 && offsetof(CqPage, sleepers) == 132 &&
              offsetof(CqPage, tail) == 192 && offsetof(CqPage, overrun) == 196 &&
              offsetof(CqPage, told) == 200 && offsetof(CqPage, solicited) == 204);

constexpr std::uint32_t cq_bytes(std::uint32_t depth) {
  return static_cast<std::uint32_t>(sizeof(CqPage) + sizeof(Cqe) * depth);
}

// ---- Inline receive: one per process ------------------------------------------------------------

// To write a few bytes into a program's memory costs hcad as much as all else of a short message
// that came. So one that came alone may lie here until its completion is polled: the program's
// library then copies it (hca/verbs/inline_recv.h), as those of some HCAs take it out of the CQE.
// Only where nobody but the program may look meanwhile: in regions without rights for peers. And
// one at a time: whose program has not polled it yet has more to do than hcad.
inline constexpr std::uint32_t kInlineRecvBytes = 64;

enum class InlineRecvState : std::uint32_t {
  free = 0,
  full = 1,   // hcad, release: the rest is written
  taken = 2,  // by a thread of the program that copies it
  home = 3,   // copied before its completion was polled, which will find it so
};

struct InlineRecv {
  std::atomic<InlineRecvState> state;
  std::uint32_t length;
  std::uint32_t lkey;
  std::uint32_t cq;
  std::uint64_t address;
  // hcad: how often it laid over these bytes what it wrote into the same memory since. Who copies
  // looks at it before and after, and copies again where it has changed.
  Shared32 version;
  std::uint32_t reserved[9];
  alignas(64) std::byte bytes[kInlineRecvBytes];
};
static_assert(sizeof(InlineRecv) == 128 && offsetof(InlineRecv, address) == 16 &&
              offsetof(InlineRecv, version) == 24 && offsetof(InlineRecv, bytes) == 64);

// ---- Doorbells: one ring per process ------------------------------------------------------------

struct DoorbellPage {
  std::uint32_t magic;
  std::uint32_t version;
  std::uint32_t entries;  // kDoorbellEntries
  std::uint32_t reserved0[13];
  // The application writes, under one lock of its own.
  alignas(64) Shared32 tail;
  Shared32 overflow;      // 1: an entry found no room; hcad then looks at every QP of the process
  Shared32 takes_inline;  // 1: hcad may leave a message in inline_recv
  std::uint32_t reserved1[13];
  // hcad writes with each doorbell; the application looks when the ring seems full.
  alignas(64) Shared32 head;
  std::uint32_t reserved2[15];
  // hcad writes, and each doorbell reads.
  alignas(64) Shared32 sleeping;  // 1: hcad waits in the kernel; write the eventfd after pushing
  std::uint32_t reserved3[15];
  InlineRecv inline_recv;
  std::uint32_t qp_num[kDoorbellEntries];  // the application writes
};
static_assert(offsetof(DoorbellPage, tail) == 64 && offsetof(DoorbellPage, overflow) == 68 &&
              offsetof(DoorbellPage, takes_inline) == 72 && offsetof(DoorbellPage, head) == 128 &&
              offsetof(DoorbellPage, sleeping) == 192 &&
              offsetof(DoorbellPage, inline_recv) == 256 && offsetof(DoorbellPage, qp_num) == 384 &&
              sizeof(DoorbellPage) == 384 + 4 * kDoorbellEntries);

}  // namespace hca
