// Attachment of other hosts over a network card that DPDK drives (any PMD; af_packet and af_xdp are
// tested on veth). fabricd is a host of its own on that wire: it answers ARP for its address and
// speaks Ethernet, IPv4 and UDP itself. The sessions are those of fabric/port/session_port.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "emu/base/result.h"
#include "fabric/port/session_port.h"

namespace fabric {

struct EthdevPortOptions {
  std::string device;  // DPDK device arguments: "net_af_packet0,iface=veth0"
  std::string listen;  // "10.0.0.2:4791": an address that nobody else on the wire has
  SessionPortOptions session;
};

// The device and the three protocols; also used bare by tests/bench/attach.
emu::Result<std::unique_ptr<Datagrams>> open_ethdev(const std::string& device,
                                                    emu::UdpAddress address, std::uint32_t mtu);

class EthdevPort final : public SessionPort {
 public:
  // DPDK's environment has been started.
  static emu::Result<std::unique_ptr<EthdevPort>> open(const EthdevPortOptions& options,
                                                       PacketMemory& memory);

 private:
  using SessionPort::SessionPort;
};

}  // namespace fabric
