#include "hca/daemon/mad_service.h"

#include "emu/clock/host.h"
#include "emu/ring/unix_socket.h"

namespace hca {

MadFileId MadService::open(int socket) {
  const MadFileId file = agents_.open();
  sockets_[file] = socket;
  return file;
}

void MadService::close(MadFileId file) {
  agents_.close(file);
  sockets_.erase(file);
}

bool MadService::write(MadFileId file, std::span<const std::byte> message) {
  return agents_.write(file,
                       {reinterpret_cast<const std::uint8_t*>(message.data()), message.size()},
                       emu::host_now_ns());
}

// Who does not read loses what it is sent, as a full queue of datagrams does.
void MadService::to_program(MadFileId file, std::span<const std::uint8_t> message) {
  const auto socket = sockets_.find(file);
  if (socket == sockets_.end()) return;
  (void)emu::send_message(socket->second, std::as_bytes(message));
}

}  // namespace hca
