// Memory regions and their keys: from (key, address, length, access) to bytes that may be touched.
// Called for every piece of every packet, so a key names its slot directly.
#pragma once

#include <cstdint>
#include <vector>

#include "hca/abi/attributes.h"
#include "hca/host/memory.h"

namespace hca {

inline constexpr std::uint32_t kAccessLocalRead = 0;  // every region has it

struct Mr {
  std::uint64_t iova = 0;
  std::uint64_t length = 0;
  std::uint64_t address = 0;       // in the client
  std::uint8_t* mapped = nullptr;  // ours, or null
  std::uint32_t key = 0;           // 0: slot is free
  std::uint32_t pd = 0;
  std::uint32_t access = 0;
  ClientId client = 0;
  std::uint8_t generation = 0;  // changes with every use of the slot, so that old keys fail
};

// Where a checked range lies.
struct Range {
  std::uint8_t* mapped = nullptr;  // use this if not null
  std::uint64_t address = 0;       // else this address of `client`
  ClientId client = 0;
};

// slot << 8 | generation; slot 0 is never given out, so key 0 is never valid.
constexpr std::uint32_t mr_slot(std::uint32_t key) { return key >> 8; }

inline bool resolve(const std::vector<Mr>& mrs, std::uint32_t key, std::uint32_t pd,
                    std::uint64_t iova, std::uint64_t length, std::uint32_t access, Range& range) {
  const std::uint32_t slot = mr_slot(key);
  if (slot >= mrs.size()) return false;
  const Mr& mr = mrs[slot];
  if (mr.key != key || key == 0 || mr.pd != pd || (mr.access & access) != access) return false;
  // The subtractions cannot wrap where they are reached.
  if (iova < mr.iova || length > mr.length || iova - mr.iova > mr.length - length) return false;
  const std::uint64_t offset = iova - mr.iova;
  range.mapped = mr.mapped == nullptr ? nullptr : mr.mapped + offset;
  range.address = mr.address + offset;
  range.client = mr.client;
  return true;
}

}  // namespace hca
