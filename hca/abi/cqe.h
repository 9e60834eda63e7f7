// Completions as they lie in the shared completion rings: hcad writes, the application reads.
// Numbers equal those of <infiniband/verbs.h>.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace hca {

// IBV_WC_*.
enum class WcStatus : std::uint8_t {
  success = 0,
  loc_len_err = 1,
  loc_qp_op_err = 2,
  loc_eec_op_err = 3,
  loc_prot_err = 4,
  wr_flush_err = 5,
  mw_bind_err = 6,
  bad_resp_err = 7,
  loc_access_err = 8,
  rem_inv_req_err = 9,
  rem_access_err = 10,
  rem_op_err = 11,
  retry_exc_err = 12,
  rnr_retry_exc_err = 13,
  loc_rdd_viol_err = 14,
  rem_inv_rd_req_err = 15,
  rem_abort_err = 16,
  inv_eecn_err = 17,
  inv_eec_state_err = 18,
  fatal_err = 19,
  resp_timeout_err = 20,
  general_err = 21,
};

// IBV_WC_SEND … ; receive opcodes start at 128.
enum class WcOpcode : std::uint8_t {
  send = 0,
  rdma_write = 1,
  rdma_read = 2,
  comp_swap = 3,
  fetch_add = 4,
  bind_mw = 5,
  local_inv = 6,
  atomic_write = 9,
  recv = 128,
  recv_rdma_with_imm = 129,
};

inline constexpr std::uint32_t kWcGrh = 1u << 0;
inline constexpr std::uint32_t kWcWithImm = 1u << 1;
inline constexpr std::uint32_t kWcWithInv = 1u << 3;  // imm: the key that ended, host order
// For the program's library: the message still lies in DoorbellPage::inline_recv.
inline constexpr std::uint32_t kWcInline = 1u << 31;

struct Cqe {
  std::uint64_t wr_id;
  std::uint64_t timestamp_ns;  // emulated: last tail flit's arrival (receive), completion (send)
  std::uint64_t head_ns;       // emulated: first head flit left the source HCA (receives only)
  std::uint32_t byte_len;
  std::uint32_t imm;  // as the sender gave it
  std::uint32_t qp_num;
  std::uint32_t src_qp;
  // Which check failed: hca/host/error.h. Of a datagram of RoCE v2 that came, its SL.
  std::uint32_t vendor_err;
  std::uint32_t wc_flags;
  std::uint16_t slid;
  std::uint16_t pkey_index;
  WcStatus status;
  WcOpcode opcode;
  std::uint8_t sl;  // of a datagram of RoCE v2 the type of its header instead
  std::uint8_t dlid_path_bits;
  // For the program's library after hcad's death, which may come between any two stores: a CQE that
  // is whole counts even if the queue's tail does not speak of it yet.
  std::uint32_t done;      // the head of the queue whose request it completes, after it
  std::uint32_t sequence;  // its index in this CQ plus one, written last; anything else: not whole
};

static_assert(sizeof(Cqe) == 64 && std::has_unique_object_representations_v<Cqe>);
static_assert(offsetof(Cqe, timestamp_ns) == 8 && offsetof(Cqe, head_ns) == 16 &&
              offsetof(Cqe, byte_len) == 24 && offsetof(Cqe, imm) == 28 &&
              offsetof(Cqe, qp_num) == 32 && offsetof(Cqe, src_qp) == 36 &&
              offsetof(Cqe, vendor_err) == 40 && offsetof(Cqe, wc_flags) == 44 &&
              offsetof(Cqe, slid) == 48 && offsetof(Cqe, status) == 52 &&
              offsetof(Cqe, opcode) == 53 && offsetof(Cqe, done) == 56 &&
              offsetof(Cqe, sequence) == 60);

}  // namespace hca
