// The memory of client processes, as hca/host asks for it: gather lists between a client's
// addresses and ours. hca/daemon implements it by process_vm_readv/writev; tests in-process. Keys,
// bounds and access were checked before anything arrives here.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

namespace hca {

using ClientId = std::uint32_t;  // an attached application process; dense, reused after close

inline constexpr std::uint32_t kNone = ~0u;  // an index that names nothing

// One contiguous copy. `local` is ours, `remote` an address of that client.
struct MemoryPiece {
  std::uint8_t* local;
  std::uint64_t remote;
  std::uint32_t length;
  ClientId client;
};

// Programs poll the last byte, or word, of what a peer writes, as they may with an adapter that
// writes upwards. So many of its bytes come last: the largest aligned word that ends there.
constexpr std::uint32_t last_bytes(std::uint64_t end, std::uint32_t length) {
  constexpr std::uint32_t kWordBytes = 8;
  const std::uint32_t aligned = 1U << std::min(std::countr_zero(end), std::countr_zero(kWordBytes));
  return std::min(aligned, std::bit_floor(std::min(length, kWordBytes)));
}

class Memory {
 public:
  virtual ~Memory() = default;
  // Each copies the pieces in order and returns how many were copied whole; the one after those
  // faulted (unmapped, or the process is gone). Pieces of one client mostly stand together.
  virtual std::size_t read(std::span<const MemoryPiece> pieces) = 0;  // remote -> local
  // local -> remote; where programs look meanwhile, last_bytes() of each piece behind its others.
  virtual std::size_t write(std::span<const MemoryPiece> pieces) = 0;
  // After a fault: the client has ended, not only its mapping. Its QPs then fall silent instead of
  // answering, as those of a node that lost power would.
  virtual bool gone(ClientId client) const = 0;
};

}  // namespace hca
