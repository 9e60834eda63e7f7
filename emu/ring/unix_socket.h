// How a process meets another on this host: unix sockets of the SEQPACKET kind at a path in the run
// directory, messages with file descriptors, and the kernel's word on who the peer is.
// Called by both daemons and the verbs library; nothing here blocks unless it says so.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstddef>
#include <span>
#include <string>

#include "emu/base/result.h"
#include "emu/ring/fd.h"

namespace emu {

inline constexpr std::size_t kMessageFdsMax = 16;           // descriptors in one message
inline constexpr std::size_t kMessageBytesMax = 64 * 1024;  // no control message is longer

// Listens at `path` (any length; a socket that nobody listens on any more is replaced, one that is
// in use is an error). Mode 0600. Nonblocking. Whoever calls holds the PidFile of its room.
Result<UniqueFd> listen_unix(const std::string& path);
// Connects; the socket is blocking unless `nonblocking`. The message tells a missing path from a
// path where nobody listens.
Result<UniqueFd> connect_unix(const std::string& path, bool nonblocking = false);
// A waiting connection of the same user (or root), nonblocking. No descriptor: nobody waits.
// A peer of another user is an error and is closed.
Result<UniqueFd> accept_unix(int listener);

struct Peer {
  pid_t pid = 0;
  uid_t uid = 0;
};
Result<Peer> peer_of(int socket);          // SO_PEERCRED
Result<Peer> check_same_user(int socket);  // an error unless the peer is this user or root

// Sends one message. false: the socket is full (nonblocking) and nothing was sent. Of an error
// errno is the kernel's: EBADF, if the socket or one of `fds` is not open, and then nothing was
// sent.
Result<bool> send_message(int socket, std::span<const std::byte> bytes,
                          std::span<const int> fds = {});

struct ReceivedMessage {
  enum class State { message, nothing_yet, closed } state = State::nothing_yet;
  // Descriptors came along and this process has no room for them all: none is kept. The bytes are
  // whole, and who sent them did nothing wrong.
  bool fds_lost = false;
  std::size_t bytes = 0;
  std::size_t fd_count = 0;
  std::array<ForeignFd, kMessageFdsMax> fds;
};
// Receives one message into `buffer`. One that is longer than the buffer, or that carries more
// than kMessageFdsMax descriptors, is an error; its descriptors are closed.
Result<ReceivedMessage> receive_message(int socket, std::span<std::byte> buffer);
// Waits up to `timeout_ms` for something to receive; false: nothing came.
Result<bool> wait_readable(int fd, int timeout_ms);

}  // namespace emu
