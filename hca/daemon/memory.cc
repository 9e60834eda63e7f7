#include "hca/daemon/memory.h"

#include <dirent.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <memory>
#include <string>

#include "emu/base/log.h"

namespace hca {

namespace {
constexpr std::size_t kBatchPieces = 64;  // one call costs 1.7 us, 64 packets in one 0.4 us each
constexpr std::size_t kBatchBytes = 256 << 10;  // what may have to be paged in holds up all others

// A process whose first thread has ended (pthread_exit in main) lives on, but its memory is reached
// by the numbers of its other threads alone. They are looked up at every call: the number of a
// thread that has ended may be somebody else's.
template <class Copy>
ssize_t by_another_thread(pid_t pid, const Copy& copy_by) {
  const std::string path = "/proc/" + std::to_string(pid) + "/task";
  const std::unique_ptr<DIR, int (*)(DIR*)> threads(::opendir(path.c_str()), &::closedir);
  errno = ESRCH;
  while (const dirent* entry = threads ? ::readdir(threads.get()) : nullptr) {
    const auto id = static_cast<pid_t>(std::strtol(entry->d_name, nullptr, 10));
    if (id <= 0 || id == pid) continue;
    const ssize_t copied = copy_by(id);
    if (copied >= 0 || errno != ESRCH) return copied;
  }
  errno = ESRCH;
  return -1;
}

// Our side of a piece whose `last` bytes come last; returns how many copies it takes. The kernel
// may write the bytes of one copy in any order (x86: rep movsb), but each behind the one before it.
std::size_t split(const MemoryPiece& piece, std::uint32_t last, iovec* copies) {
  const std::uint32_t before = piece.length - last;
  copies[0] = {piece.local, before};
  if (last == 0) return 1;
  copies[before == 0 ? 0 : 1] = {piece.local + before, last};
  return before == 0 ? 1 : 2;
}
}  // namespace

void ProcessMemory::attach(ClientId client, pid_t pid) {
  if (client >= pids_.size()) pids_.resize(client + 1, 0);
  pids_[client] = pid;
}

void ProcessMemory::detach(ClientId client) {
  if (client < pids_.size()) pids_[client] = 0;
}

std::size_t ProcessMemory::read(std::span<const MemoryPiece> pieces) {
  return copy(pieces, Direction::read);
}

std::size_t ProcessMemory::write(std::span<const MemoryPiece> pieces) {
  return copy(pieces, Direction::write);
}

bool ProcessMemory::gone(ClientId client) const {
  return client >= pids_.size() || pids_[client] == 0;
}

std::size_t ProcessMemory::copy(std::span<const MemoryPiece> pieces, Direction direction) {
  std::size_t done = 0;
  while (done < pieces.size()) {
    std::size_t count = 1;
    std::size_t bytes = pieces[done].length;
    while (count < kBatchPieces && done + count < pieces.size() &&
           pieces[done + count].client == pieces[done].client &&
           bytes + pieces[done + count].length <= kBatchBytes) {
      bytes += pieces[done + count].length;
      ++count;
    }
    const std::size_t copied = copy_batch(pieces.subspan(done, count), direction);
    done += copied;
    if (copied < count) break;
  }
  return done;
}

std::size_t ProcessMemory::copy_batch(std::span<const MemoryPiece> batch, Direction direction) {
  const ClientId client = batch.front().client;
  if (client >= pids_.size() || pids_[client] == 0) return 0;
  std::array<iovec, 2 * kBatchPieces> local;  // as far as they are written here
  std::array<iovec, kBatchPieces> remote;
  std::size_t copies = 0;
  std::size_t ranges = 0;  // of the client: packets of a message lie side by side there
  std::uint64_t end = 0;   // of the last one
  for (std::size_t i = 0; i < batch.size(); ++i) {
    const MemoryPiece& piece = batch[i];
    const std::uint64_t piece_end = piece.remote + piece.length;
    const bool writes = direction == Direction::write;
    copies += split(piece, writes ? last_bytes(piece_end, piece.length) : 0, &local[copies]);
    // The address means something in the client only; the kernel looks at it there, and at every
    // range anew.
    if (ranges != 0 && piece.remote == end) {
      remote[ranges - 1].iov_len += piece.length;
    } else {
      remote[ranges++] = {reinterpret_cast<void*>(piece.remote), piece.length};
    }
    end = piece_end;
  }
  const auto call = direction == Direction::read ? ::process_vm_readv : ::process_vm_writev;
  const auto copy_by = [&](pid_t id) {
    return call(id, local.data(), copies, remote.data(), ranges, 0);
  };
  watch_.begin(pids_[client]);
  ssize_t copied = copy_by(pids_[client]);
  if (copied < 0 && errno == ESRCH) copied = by_another_thread(pids_[client], copy_by);
  if (watch_.end()) [[unlikely]] {
    emu::log_warning("program " + std::to_string(pids_[client]) +
                     ": its memory did not come, which holds up all others: killed");
    copied = -1;
    errno = ESRCH;
  }
  // ESRCH: it is dying, its memory went before its connection did.
  if (copied < 0 && errno == ESRCH) pids_[client] = 0;
  // A short count ends inside the first piece that faulted; whole pieces before it count.
  auto left = copied < 0 ? std::size_t{0} : static_cast<std::size_t>(copied);
  std::size_t whole = 0;
  while (whole < batch.size() && left >= batch[whole].length) {
    left -= batch[whole].length;
    ++whole;
  }
  // A piece of no bytes at the front of a failed call was "copied" all the same.
  return whole;
}

}  // namespace hca
