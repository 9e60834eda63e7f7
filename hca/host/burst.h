// Packets on their way out, gathered so that the client's memory is read in one call for many of
// them. Headers are written when a packet is decided, payload is fetched and sealed at dispatch.
#pragma once

#include <array>
#include <cstdint>

#include "emu/wire/message.h"
#include "hca/abi/limits.h"
#include "hca/host/memory.h"
#include "hca/host/port.h"

namespace hca {

inline constexpr std::uint32_t kBurstPackets = 64;  // process_vm_readv gains little beyond
inline constexpr std::uint32_t kBurstPieces = 256;
static_assert(kBurstPieces >= kMaxSge + kBurstPackets, "a packet with the longest list fits");

// Why the bytes of a packet could not be had.
enum class Failure : std::uint8_t {
  none,
  key,      // it opened them when the request was checked, and does not now
  memory,   // they are not there
  earlier,  // nothing of its own: a packet of its QP before it failed
};

struct BurstPacket {
  emu::TxDesc desc;
  PacketSlot slot;
  std::uint32_t qp_slot;
  std::uint32_t unsealed_bytes;  // headers and payload
  std::uint32_t psn;
  std::uint32_t sq_index;  // requests: which one
  std::uint32_t packets;   // more than one: a train
  bool loop;               // to this same node
  bool multicast;          // a copy of a message to a group
  bool response;           // a READ response: its failure is the responder's
  bool request;            // carries (a part of) the request at sq_index
  Failure failure;
  bool failed() const { return failure != Failure::none; }
};

struct Burst {
  std::uint32_t packets_count = 0;
  std::uint32_t pieces_count = 0;
  std::array<BurstPacket, kBurstPackets> packets;
  std::array<MemoryPiece, kBurstPieces> pieces;
  std::array<std::uint16_t, kBurstPieces> piece_packet;

  bool room() const {
    return packets_count < kBurstPackets && pieces_count + kMaxSge <= kBurstPieces;
  }
};

}  // namespace hca
