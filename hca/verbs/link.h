// The connection of an opened device with its hcad: requests and replies in turn
// (hca/abi/control.h). In: requests from any thread. Out: replies with descriptors. Called by
// everything here that is not on the datapath. When hcad goes away the link is dead for good, and
// the device with it.
#pragma once

#include <sys/types.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <memory>
#include <mutex>
#include <span>
#include <utility>

#include "emu/ring/fd.h"
#include "hca/abi/control.h"

namespace hca {

inline constexpr std::size_t kReplyFdsMax = 3;  // hello has the most

struct Answered {
  ControlReply reply{};
  std::array<emu::UniqueFd, kReplyFdsMax> fds;
  bool fds_lost = false;  // this process had no room for them; hcad did what it was asked
  // Why a descriptor is missing.
  int without_fds() const { return fds_lost ? EMFILE : EPROTO; }
};

class Link {
 public:
  // Connects to the hcad at `path`. Null: it says why in one line on stderr and sets errno.
  static std::unique_ptr<Link> open(const char* path);
  ~Link();
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  // 0, or the errno of the reply; EIO if hcad is gone. `fd`: travels with the request, if >= 0;
  // EBADF if it is not open, and then hcad was not asked.
  int ask(const ControlRequest& request, Answered& answered, int fd = -1);
  int ask(const ControlRequest& request) {
    Answered ignored;
    return ask(request, ignored);
  }

  // One message of bytes there, one back (rdma_cm's commands); `got`: how many. 0 or an errno.
  int talk(std::span<const std::byte> bytes, std::span<std::byte> reply, std::size_t& got);

  // In a forked child: the rings belong to the parent still, and a lock of the library may be held
  // by a thread that the child does not have. Ask before taking one.
  bool abandoned() const { return abandoned_.load(std::memory_order_relaxed); }
  bool dead() const { return dead_.load(std::memory_order_relaxed); }
  // Asks the kernel whether hcad still holds its end; for those who wait for something else.
  bool look_dead();
  void hang_up();  // hcad sees the end, whoever may still hold the link
  // The connection alone, for who has another use for it; the link is done.
  emu::UniqueFd take_socket() { return std::move(socket_); }
  pid_t hcad() const { return hcad_; }

 private:
  friend struct LiveLinks;
  explicit Link(emu::UniqueFd socket, pid_t hcad);
  int fail();
  void abandon() noexcept;  // in a forked child: the connection is the parent's

  std::mutex turn_;
  emu::UniqueFd socket_;
  std::atomic<bool> dead_{false};
  std::atomic<bool> abandoned_{false};
  pid_t hcad_ = 0;
};

}  // namespace hca
