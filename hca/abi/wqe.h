// Work requests as they lie in the shared rings. The application's verbs library writes them, hcad
// copies each once and trusts nothing in it. Numbers equal those of <infiniband/verbs.h> so that
// neither side translates; the verbs room asserts that equality.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "hca/abi/limits.h"

namespace hca {

// IBV_WR_*.
enum class WrOpcode : std::uint8_t {
  rdma_write = 0,
  rdma_write_imm = 1,
  send = 2,
  send_imm = 3,
  rdma_read = 4,
  atomic_cas = 5,
  atomic_fadd = 6,
  local_inv = 7,  // imm: the key, host order
  bind_mw = 8,    // remote_addr: where it begins; rkey: the window's key as it is; an extension
  send_inv = 9,   // imm: the key, host order
  atomic_write = 15,
};

// IBV_SEND_*, and ours above them.
inline constexpr std::uint8_t kWqeFence = 1u << 0;
inline constexpr std::uint8_t kWqeSignaled = 1u << 1;
inline constexpr std::uint8_t kWqeSolicited = 1u << 2;
inline constexpr std::uint8_t kWqeInline = 1u << 3;
inline constexpr std::uint8_t kWqeExtended = 1u << 7;  // a WqeExtension stands before the payload

inline constexpr std::uint32_t kAtomicBytes = 8;

constexpr bool is_atomic(WrOpcode opcode) {
  return opcode == WrOpcode::atomic_cas || opcode == WrOpcode::atomic_fadd;
}

// Answered one by one, with data or to say that memory has it; how many may be under way is agreed.
constexpr bool is_answered(WrOpcode opcode) {
  return opcode == WrOpcode::rdma_read || opcode == WrOpcode::atomic_write || is_atomic(opcode);
}

// These do not leave the HCA; they take their turn in the send queue.
constexpr bool is_local(WrOpcode opcode) {
  return opcode == WrOpcode::bind_mw || opcode == WrOpcode::local_inv;
}

// Packets that the HCA sends for a request whose message is cut into packets of `payload` bytes (0:
// not connected yet): so many of its credits the application needs.
constexpr std::uint32_t packets_of(WrOpcode opcode, std::uint64_t length, std::uint32_t payload) {
  if (is_local(opcode)) return 0;
  if (is_answered(opcode) || length == 0 || payload == 0) return 1;
  return static_cast<std::uint32_t>((length + payload - 1) / payload);
}

// ibv_sge.
struct Sge {
  std::uint64_t addr;
  std::uint32_t length;
  std::uint32_t lkey;
};

// First 64 bytes of a send queue slot. Behind it: [WqeExtension if kWqeExtended], then num_sge Sge
// or inline_length bytes.
// An atomic request has a WqeExtension with its operands; its list is kAtomicBytes long. So has an
// atomic write with its bytes, and no list.
struct SendWqe {
  std::uint64_t wr_id;
  std::uint64_t remote_addr;     // RDMA
  std::uint64_t launch_ns;       // emulated time of the first packet; 0: as soon as possible
  std::uint32_t launch_span_ns;  // packet i of n leaves at launch_ns + i * span / n
  std::uint32_t rkey;            // RDMA
  std::uint32_t imm;             // as the application gave it (network byte order)
  std::uint32_t remote_qpn;      // UD
  std::uint32_t remote_qkey;     // UD
  std::uint32_t inline_length;   // with kWqeInline
  std::uint16_t dlid;            // UD: from the address handle
  std::uint8_t sl;               // UD
  std::uint8_t src_path_bits;    // UD
  WrOpcode opcode;
  std::uint8_t flags;
  std::uint8_t num_sge;
  std::uint8_t reserved0;
  std::uint32_t xrc_srqn;   // XRC: the peer's SRQ
  std::uint32_t reserved1;  // 0
};

// Rare fields: GRH of a UD address handle, operands of atomics, what a window is bound to.
struct WqeExtension {
  std::uint8_t dgid[16];
  std::uint64_t compare_add;
  std::uint64_t swap;  // or what an atomic write writes, as it lies in memory
  std::uint32_t flow_label;
  std::uint8_t is_global;  // 1: the packet carries a GRH
  std::uint8_t sgid_index;
  std::uint8_t hop_limit;
  std::uint8_t traffic_class;
  std::uint64_t bind_length;  // bytes; 0: to nothing
  std::uint32_t bind_lkey;    // of the region
  std::uint32_t bind_rkey;    // its lowest byte: the window's key from now on
  std::uint32_t bind_access;  // kAccess…
  std::uint32_t reserved;     // 0
};

// First 16 bytes of a receive queue slot; num_sge Sge follow.
struct RecvWqe {
  std::uint64_t wr_id;
  std::uint32_t num_sge;
  std::uint32_t reserved;  // 0
};

static_assert(sizeof(Sge) == 16 && std::has_unique_object_representations_v<Sge>);
static_assert(offsetof(Sge, length) == 8 && offsetof(Sge, lkey) == 12);
static_assert(sizeof(SendWqe) == 64 && std::has_unique_object_representations_v<SendWqe>);
static_assert(offsetof(SendWqe, remote_addr) == 8 && offsetof(SendWqe, launch_ns) == 16 &&
              offsetof(SendWqe, launch_span_ns) == 24 && offsetof(SendWqe, rkey) == 28 &&
              offsetof(SendWqe, imm) == 32 && offsetof(SendWqe, remote_qpn) == 36 &&
              offsetof(SendWqe, remote_qkey) == 40 && offsetof(SendWqe, inline_length) == 44 &&
              offsetof(SendWqe, dlid) == 48 && offsetof(SendWqe, sl) == 50 &&
              offsetof(SendWqe, opcode) == 52 && offsetof(SendWqe, flags) == 53 &&
              offsetof(SendWqe, num_sge) == 54 && offsetof(SendWqe, xrc_srqn) == 56);
static_assert(sizeof(WqeExtension) == 64 && std::has_unique_object_representations_v<WqeExtension>);
static_assert(offsetof(WqeExtension, compare_add) == 16 && offsetof(WqeExtension, swap) == 24 &&
              offsetof(WqeExtension, flow_label) == 32 && offsetof(WqeExtension, is_global) == 36 &&
              offsetof(WqeExtension, bind_length) == 40 && offsetof(WqeExtension, bind_rkey) == 52);
static_assert(sizeof(RecvWqe) == 16 && std::has_unique_object_representations_v<RecvWqe>);

inline constexpr std::uint32_t kSendSlotMax =
    sizeof(SendWqe) + sizeof(WqeExtension) + kMaxInline;  // inline is the larger payload
static_assert(kMaxInline >= kMaxSge * sizeof(Sge), "the largest slot holds either payload");

}  // namespace hca
