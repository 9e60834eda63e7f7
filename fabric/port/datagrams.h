// How the session port sends and receives datagrams: a kernel socket (fabric/port/udp) or a network
// card driven by DPDK (fabric/port/ethdev). Never blocks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "emu/wire/udp_socket.h"

namespace fabric {

class Datagrams {
 public:
  // True: authentic, so its sender really is where it came from.
  using Sink = std::function<bool(const emu::UdpAddress& from, std::span<const std::byte>)>;
  using Outgoing = emu::UdpSocket::Outgoing;
  static constexpr std::size_t kBatch = emu::UdpSocket::kBatch;

  virtual ~Datagrams() = default;
  // Hands what has arrived to `sink`, a bounded lot; true: there may be more.
  virtual bool receive(const Sink& sink) = 0;
  // Looks after itself: called every some milliseconds of host time.
  virtual void service(std::uint64_t /*host_ns*/) {}
  // At most kBatch trains; what cannot go counts as lost on the way.
  virtual void send(std::span<const Outgoing> batch) = 0;
  // Readable when something has arrived; -1: it must be polled.
  virtual int fd() const = 0;
};

}  // namespace fabric
