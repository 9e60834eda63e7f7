// The socket of hcad's UDP attachment, driven by io_uring: one multishot receive into a ring of
// buffers, one send at a time. Looking for datagrams costs no system call when there are none.
// Private to hca/attach/udp.
#pragma once

#include <liburing.h>
#include <netinet/in.h>

#include <array>
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "emu/base/result.h"
#include "emu/wire/udp_socket.h"

namespace hca {

class UdpRing {
 public:
  // Fails where the kernel lacks or forbids what is used: Linux 6.0, and no seccomp in the way.
  static emu::Result<std::unique_ptr<UdpRing>> open(int socket);
  ~UdpRing();
  UdpRing(const UdpRing&) = delete;
  UdpRing& operator=(const UdpRing&) = delete;

  int fd() const { return ring_.ring_fd; }  // readable when receive() has something
  // The bytes of the last train still belong to the kernel.
  bool sending() const { return sending_; }
  void send(emu::UdpAddress to, const emu::Train& train);
  // Hands each datagram that has arrived to `sink`; true: there was something.
  using Sink = std::function<void(std::span<const std::byte> datagram)>;
  bool receive(const Sink& sink);

  const emu::UdpCounters& counters() const { return counters_; }

 private:
  UdpRing() = default;
  io_uring_sqe* entry();
  void submit();
  void arm_receive();
  void take(const io_uring_cqe& completion, const Sink& sink);
  void unpack(std::span<std::byte> buffer, const Sink& sink);
  void give_buffer(std::uint16_t index);
  std::span<std::byte> buffer(std::uint16_t index);

  io_uring ring_{};
  bool have_ring_ = false;
  int socket_ = -1;
  bool armed_ = false;
  bool sending_ = false;
  int receive_error_ = 0;  // of the last one, an errno: the first one's tells what the kernel lacks
  bool segmentation_ = true;
  io_uring_buf_ring* buffers_ = nullptr;
  std::vector<std::byte> bytes_;
  msghdr receive_message_{};
  // The train that is being sent.
  msghdr send_message_{};
  iovec send_vector_{};
  sockaddr_in send_to_{};
  alignas(cmsghdr) std::array<std::byte, emu::kUdpControlBytes> send_control_{};
  emu::UdpCounters counters_;
};

}  // namespace hca
