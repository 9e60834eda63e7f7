// Attachment over shared memory, for an hcad on fabricd's host. Layout: emu/wire/shm_layout.h.
#pragma once

#include <memory>
#include <string>

#include "emu/base/units.h"
#include "emu/wire/lending.h"
#include "hca/attach/attach.h"

namespace hca {

struct ShmAttachOptions {
  std::string run_dir;    // holds fabric.sock and clock.page
  std::string node_name;  // as in the configuration; the fabric answers with its NodeId
  // Where the fabric and all nodes are one process; null: they are not, and nothing is lent.
  emu::Lending* lending = nullptr;
};

// Never fails: the state is `down` until service() has reached the fabric.
std::unique_ptr<Attachment> make_shm_attachment(ShmAttachOptions options);

}  // namespace hca
