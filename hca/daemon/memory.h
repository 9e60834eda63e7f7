// The memory of client programs by process_vm_readv/writev: no copy into shared buffers, no special
// allocation. The kernel checks that the client is of our user and that its addresses exist; keys
// and bounds were checked by hca/host. Called by hca/host for what it cannot reach itself.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <span>
#include <vector>

#include "hca/daemon/copy_watch.h"
#include "hca/host/memory.h"

namespace hca {

class ProcessMemory : public Memory {
 public:
  // A client is a process from attach() to detach(). Its connection is closed by the kernel when it
  // dies, before its pid can be another's, so detach() comes in time.
  void attach(ClientId client, pid_t pid);
  void detach(ClientId client);

  std::size_t read(std::span<const MemoryPiece> pieces) override;
  std::size_t write(std::span<const MemoryPiece> pieces) override;
  bool gone(ClientId client) const override;

 private:
  enum class Direction : std::uint8_t { read, write };
  std::size_t copy(std::span<const MemoryPiece> pieces, Direction direction);
  std::size_t copy_batch(std::span<const MemoryPiece> batch, Direction direction);

  CopyWatch watch_;
  std::vector<pid_t> pids_;  // 0: nobody, or one that has ended
};

}  // namespace hca
