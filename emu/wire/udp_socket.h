// A UDP socket that sends and receives trains of equal segments (UDP_SEGMENT, UDP_GRO). In: trains
// and addresses. Out: datagrams. The kernel-socket end of fabric/port/udp, and of hca/attach/udp
// where io_uring is forbidden. Never blocks.
#pragma once

#include <netinet/in.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "emu/base/result.h"
#include "emu/ring/fd.h"
#include "emu/wire/channel.h"

namespace emu {

// IPv4 and port in network order.
struct UdpAddress {
  std::uint32_t ip = 0;
  std::uint16_t port = 0;
  friend bool operator==(const UdpAddress&, const UdpAddress&) = default;

  // "10.0.0.1:4791" or "host:4791".
  static Result<UdpAddress> resolve(std::string_view text);
  static UdpAddress of(const sockaddr_in& from) { return {from.sin_addr.s_addr, from.sin_port}; }
  sockaddr_in sockaddr() const;
  std::string text() const;
};

// A non-blocking socket bound to `local` with UDP_GRO and buffers for two windows.
Result<UniqueFd> open_udp_socket(UdpAddress local);
Result<UdpAddress> local_address(int fd);
// What UDP_GRO says about a received message: the size of its segments (all but the last).
std::size_t gro_segment(const msghdr& message, std::size_t bytes);
inline constexpr std::size_t kUdpControlBytes = 64;
inline constexpr std::size_t kUdpMessageBytesMax = 65'536;
// Fills `message` for sending `train`; `control` and `vector` must live as long as it.
void prepare_train(msghdr& message, iovec& vector, std::span<std::byte, kUdpControlBytes> control,
                   sockaddr_in& to, const Train& train);

struct UdpCounters {
  std::uint64_t calls_in = 0;
  std::uint64_t calls_out = 0;
  std::uint64_t datagrams_in = 0;
  std::uint64_t datagrams_out = 0;
  std::uint64_t refused_out = 0;  // the kernel did not take them: the session repeats them
};

class UdpSocket {
 public:
  explicit UdpSocket(UniqueFd fd);
  ~UdpSocket();
  UdpSocket(UdpSocket&&) noexcept;
  UdpSocket& operator=(UdpSocket&&) noexcept;

  int fd() const { return fd_.get(); }
  const UdpCounters& counters() const { return counters_; }

  struct Outgoing {
    UdpAddress to;
    Train train;
  };
  static constexpr std::size_t kBatch = 16;
  // At most kBatch trains in one call. What the kernel refuses counts as lost on the way.
  void send(std::span<const Outgoing> batch);

  // Hands each datagram that is there to `sink`, up to kReceiveBatch messages; returns how many
  // messages that were (0: nothing there). Few: a message has up to 64 KiB, and what is read is to
  // be in the cache still.
  static constexpr std::size_t kReceiveBatch = 4;
  using Sink = std::function<void(const UdpAddress& from, std::span<const std::byte> datagram)>;
  std::size_t receive(const Sink& sink);

 private:
  struct Batch;
  void send_single(const UdpAddress& to, const Train& train);

  UniqueFd fd_;
  std::unique_ptr<Batch> batch_;
  bool segmentation_ = true;  // until the kernel or the device refuses UDP_SEGMENT
  UdpCounters counters_;
};

}  // namespace emu
