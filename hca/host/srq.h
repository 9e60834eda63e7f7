// Shared receive queues: work requests that belong to no QP until a message takes one.
#pragma once

#include <cstdint>

#include "hca/abi/rings.h"
#include "hca/host/memory.h"
#include "hca/host/xrc.h"

namespace hca {

struct Srq {
  bool used = false;
  ClientId client = 0;
  std::uint32_t number = 0;
  std::uint32_t pd = 0;  // its receives are checked in this one, whatever the QP's is
  SrqLayout layout{};
  std::uint32_t max_wr = 0;
  std::uint32_t max_sge = 0;
  std::uint32_t next = 0;   // free running: the next receive to take
  std::uint32_t limit = 0;  // tell once fewer are posted; 0: armed no more
  std::uint32_t users = 0;  // QPs that were made for it
  // Of type XRC: QPs of its domain find it by its number, and it completes into its own CQ.
  std::uint32_t xrc_domain = kNone;
  std::uint32_t xrcd = kNone;
  std::uint32_t cq = kNone;
  std::uint8_t* region = nullptr;
  SrqPage* page = nullptr;
};

}  // namespace hca
