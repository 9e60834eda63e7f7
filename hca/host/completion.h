// Completions and writes into client memory wait here until the end of a batch: first all bytes are
// written in one call (or left for the poll, inline_recv.h), then the CQEs that speak of them
// appear, then each CQ wakes its readers once. What goes into mapped memory waits for nothing but
// the bytes before it, which are written then.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "hca/abi/rings.h"
#include "hca/host/memory.h"

namespace hca {

struct Cq {
  bool used = false;
  bool broken = false;               // overrun
  bool touched = false;              // has CQEs to announce
  bool solicited = false;            // one of them is solicited or an error
  std::uint32_t solicited_tail = 0;  // the tail after the last such one
  ClientId client = 0;
  std::uint32_t number = 0;
  std::uint32_t depth = 0;
  std::uint32_t users = 0;  // send and receive sides of QPs
  std::uint32_t tail = 0;   // ours; the page's copy is for the application
  std::uint32_t head = 0;   // the page's when we last looked
  std::uint8_t* region = nullptr;
  CqPage* page = nullptr;
};

struct PendingCqe {
  Cqe cqe;
  std::uint32_t cq;
  std::uint32_t qp_slot;
  std::uint32_t head;  // sq_head or rq_head to publish with it
  bool is_recv;
  bool solicited;
  bool visible;  // false: an unsignaled success, only the head moves
};

// Bytes that could not be written, of one half of a QP.
struct WriteFault {
  std::uint32_t qp_slot;
  std::uint32_t psn;          // kReadPiece: of the requester
  std::uint32_t cqes_before;  // CQEs that wait and were there before: not of these bytes
  bool told = false;          // a CQE that waited became an error of it
};

struct PendingEvent {
  AsyncEvent event;
  std::uint32_t qp_number;
};

inline constexpr std::uint32_t kPendingCqes = 256;
inline constexpr std::uint32_t kPendingPieces = 512;
inline constexpr std::uint32_t kOverrunsMax = 64;  // CQs in one batch; others next time
inline constexpr std::uint32_t kPendingEvents = 64;

// Set in piece_psn where the bytes are a READ's at its requester.
inline constexpr std::uint32_t kReadPiece = 1u << 31;

struct Settlement {
  std::uint32_t cqes_count = 0;
  std::uint32_t pieces_count = 0;
  std::uint32_t touched_count = 0;
  std::uint32_t events_count = 0;
  std::array<PendingCqe, kPendingCqes> cqes;
  std::array<MemoryPiece, kPendingPieces> pieces;
  std::array<std::uint32_t, kPendingPieces> piece_qp;
  std::array<std::uint32_t, kPendingPieces> piece_psn;
  std::array<std::uint32_t, kPendingPieces> piece_cqes;  // how many waited before it
  std::array<std::uint32_t, kPendingPieces> piece_key;   // Range::private_key
  std::array<std::uint32_t, kPendingCqes> touched;       // CQs to announce
  std::array<PendingEvent, kPendingEvents> events;       // that speak of these CQEs
  // Trouble met while writing, dealt with at the end of settle(): nothing changes in between.
  std::uint32_t overruns_count = 0;
  // Qp::lost_completion says whose. What else waits is enough for settle() to look: a loss outside
  // of it makes room for something.
  bool completions_lost = false;
  // As many as there are: who is left out would complete what never came. It allocates when memory
  // goes away under its QPs alone.
  std::vector<WriteFault> faults;
  std::array<std::uint32_t, kOverrunsMax> overruns;
};

}  // namespace hca
