#include "emu/wire/lending.h"

#include <cstring>

#include "emu/base/check.h"
#include "emu/wire/shm_layout.h"

namespace emu {

void Lending::open(std::uint16_t pool, std::size_t slots) {
  if (pool >= pools_.size()) pools_.resize(pool + std::size_t{1});
  CHECK(!is_open(pool));
  pools_[pool].trains.resize(slots / kTrainSlots + 1);
}

void Lending::close(std::uint16_t pool) {
  bring_home_all(pool);
  if (pool < pools_.size()) pools_[pool] = {};
}

void Lending::lend(std::uint32_t buffer, std::span<const std::uint8_t> payload,
                   std::uint8_t* home) {
  Lent* lent = find_lent(buffer);
  CHECK(lent != nullptr && lent->payload.empty() && !payload.empty());
  *lent = {payload, home};
  ++pools_[pool_of_buffer(buffer)].lent;
}

std::span<const std::uint8_t> Lending::find(std::uint32_t buffer) const {
  const Lent* lent = find_lent(buffer);
  return lent == nullptr ? std::span<const std::uint8_t>{} : lent->payload;
}

void Lending::bring_home(std::uint32_t buffer) {
  Lent* lent = find_lent(buffer);
  if (lent != nullptr) copy_home(pools_[pool_of_buffer(buffer)], *lent);
}

void Lending::bring_home_all(std::uint16_t pool) {
  if (pool >= pools_.size()) return;
  for (Lent& lent : pools_[pool].trains) {
    if (pools_[pool].lent == 0) return;
    copy_home(pools_[pool], lent);
  }
}

void Lending::end(std::uint32_t buffer) {
  Lent* lent = find_lent(buffer);
  if (lent == nullptr || lent->payload.empty()) return;
  *lent = {};
  --pools_[pool_of_buffer(buffer)].lent;
}

const Lending::Lent* Lending::find_lent(std::uint32_t buffer) const {
  const std::uint16_t pool = pool_of_buffer(buffer);
  const std::size_t train = slot_of_buffer(buffer) / kTrainSlots;
  if (pool >= pools_.size() || train >= pools_[pool].trains.size()) return nullptr;
  return &pools_[pool].trains[train];
}

void Lending::copy_home(Pool& pool, Lent& lent) {
  if (lent.payload.empty()) return;
  std::memcpy(lent.home, lent.payload.data(), lent.payload.size());
  lent = {};
  --pool.lent;
}

}  // namespace emu
