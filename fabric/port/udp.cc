#include "fabric/port/udp.h"

#include <utility>

namespace fabric {
namespace {

class SocketDatagrams final : public Datagrams {
 public:
  explicit SocketDatagrams(emu::UniqueFd fd) : socket_(std::move(fd)) {}
  bool receive(const Sink& sink) override {
    return socket_.receive([&](const emu::UdpAddress& from, std::span<const std::byte> datagram) {
      (void)sink(from, datagram);
    }) == emu::UdpSocket::kReceiveBatch;
  }
  void send(std::span<const Outgoing> batch) override { socket_.send(batch); }
  int fd() const override { return socket_.fd(); }

 private:
  emu::UdpSocket socket_;
};

}  // namespace

emu::Result<std::unique_ptr<UdpPort>> UdpPort::open(const UdpPortOptions& options,
                                                    PacketMemory& memory) {
  const auto listen = emu::UdpAddress::resolve(options.listen);
  if (!listen) return std::unexpected(listen.error());
  auto socket = emu::open_udp_socket(*listen);
  if (!socket) return std::unexpected(socket.error());
  const auto address = emu::local_address(socket->get());
  if (!address) return std::unexpected(address.error());
  auto pools = make_pools(options.session, memory);
  if (!pools) return std::unexpected(pools.error());
  return std::unique_ptr<UdpPort>(new UdpPort(options, memory, std::move(*pools),
                                              std::make_unique<SocketDatagrams>(std::move(*socket)),
                                              *address));
}

}  // namespace fabric
