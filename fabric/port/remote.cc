#include "fabric/port/remote.h"

#include <utility>

#include "fabric/port/ethdev.h"
#include "fabric/port/udp.h"

namespace fabric {

emu::Result<std::unique_ptr<Port>> open_remote_port(const emu::AttachConfig& config,
                                                    const EdgeRules& rules,
                                                    const std::string& run_dir,
                                                    PacketMemory& memory,
                                                    emu::Objection objection) {
  if (config.kind == emu::AttachKind::shm) return nullptr;
  auto key = config.key_file.empty() ? emu::ensure_key_file(run_dir + "/cluster.key")
                                     : emu::read_key_file(config.key_file);
  if (!key) return std::unexpected(key.error());
  SessionPortOptions session;
  session.rules = rules;
  session.cluster_key = *key;
  session.mtu = config.mtu;
  session.dead_ns = std::uint64_t{config.dead_after_ms} * 1'000'000;
  session.objection = std::move(objection);
  if (config.kind == emu::AttachKind::ethdev) {
    if (config.ethdev.empty()) {
      return emu::fail(
          "attach.ethdev: kind \"ethdev\" needs a device such as "
          "net_af_packet0,iface=veth0");
    }
    auto port = EthdevPort::open({config.ethdev, config.listen, std::move(session)}, memory);
    if (!port) return std::unexpected(port.error());
    return std::move(*port);
  }
  auto port = UdpPort::open({config.listen, std::move(session)}, memory);
  if (!port) return std::unexpected(port.error());
  return std::move(*port);
}

}  // namespace fabric
