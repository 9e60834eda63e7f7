// Why a request failed, for who wrote it: a status says what happened, this says by which key,
// which length, which peer. Numbers only, as the datapath allocates nothing; hca/daemon makes a
// line of the node's log of it (hca/daemon/trouble.cc).
#pragma once

#include <cstdint>

#include "emu/base/units.h"
#include "hca/abi/attributes.h"
#include "hca/abi/cqe.h"
#include "hca/host/memory.h"

namespace hca {

// Who wanted what of a key.
struct KeyUse {
  std::uint32_t key = 0;
  std::uint32_t pd = 0;
  std::uint64_t address = 0;
  std::uint64_t length = 0;
  std::uint32_t access = 0;
  std::uint64_t wr_id = 0;
};

// What keeps a key from opening a range.
enum class KeyFault : std::uint8_t { none, unknown, domain, unbound, access, window, bounds };

// Why a peer's request is no valid one.
enum class RequestFault : std::uint8_t {
  none,
  order,      // its opcode is not known, or not at this place of a message
  no_depth,   // a READ or atomic operation; max_dest_rd_atomic is 0
  depth,      // more READs outstanding than there is room for
  packet,     // a packet of `length` bytes of payload; the QP takes `size`
  length,     // a message of `length` bytes, of which `size` are left or there may be
  alignment,  // an atomic operation at `address`
  srq,        // XRC: no SRQ of its number, or another in the middle of a message
};

enum class TroubleKind : std::uint8_t {
  send_key,       // of a list entry of a send request
  recv_key,       // of a receive request
  remote_key,     // a peer's WRITE, READ or atomic operation
  remote_flag,    // ... that the QP's own access flags forbid
  remote_memory,  // ... or SEND, whose memory is not there though its key opens it
  invalidate,     // a peer's SEND that invalidates `key`, which is no window that it may
  request,        // a peer's request that is none which this QP takes: `request` says why
  too_long,       // a peer's message for the receive request that takes it
  no_reads,       // a READ or atomic operation of a QP that may have none outstanding
  ended,          // a send request, with `status`
  no_qp,          // a peer's request for a QP that is not there, or cannot take it in its state
  stranger,       // ... from a node that the QP is not connected to
  transition,     // modify_qp: `missing` and `surplus` attributes; neither: there is none such
  value,          // modify_qp: that of the attribute `surplus`
};

struct Trouble {
  TroubleKind kind = TroubleKind::ended;
  KeyFault fault = KeyFault::none;
  RequestFault request = RequestFault::none;
  WcStatus status = WcStatus::success;
  QpState from = QpState::reset;  // and `to`: of a transition; no_qp: the state it is in
  QpState to = QpState::reset;
  bool there = true;  // no_qp: whether there is such a QP
  ClientId client = 0;
  std::uint32_t qpn = 0;
  emu::Lid peer_lid = 0;
  std::uint32_t peer_qpn = 0;
  std::uint32_t key = 0;
  std::uint32_t access = 0;  // what was wanted
  std::uint64_t address = 0;
  std::uint64_t length = 0;
  std::uint64_t start = 0;  // what the key opens; too_long: `size` is that of the receive
  std::uint64_t size = 0;
  std::uint64_t wr_id = 0;
  std::uint32_t missing = 0;  // kQp…
  std::uint32_t surplus = 0;

  bool operator==(const Trouble&) const = default;
};

}  // namespace hca
