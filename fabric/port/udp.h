// Attachment of other hosts over a kernel UDP socket: one socket for all nodes. The portable end:
// needs no privilege and works in every container.
#pragma once

#include <memory>
#include <string>

#include "emu/base/result.h"
#include "fabric/port/session_port.h"

namespace fabric {

struct UdpPortOptions {
  std::string listen = "0.0.0.0:4791";
  SessionPortOptions session;
};

class UdpPort final : public SessionPort {
 public:
  static emu::Result<std::unique_ptr<UdpPort>> open(const UdpPortOptions& options,
                                                    PacketMemory& memory);
  // What the socket is bound to: with port 0 the kernel chose one.
  const emu::UdpAddress& address() const { return address_; }

 private:
  UdpPort(const UdpPortOptions& options, PacketMemory& memory, std::vector<std::uint16_t> pools,
          std::unique_ptr<Datagrams> datagrams, emu::UdpAddress address)
      : SessionPort(options.session, memory, std::move(pools), std::move(datagrams)),
        address_(address) {}

  emu::UdpAddress address_;
};

}  // namespace fabric
