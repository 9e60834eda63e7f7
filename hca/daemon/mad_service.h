// Management datagrams in hcad: programs' open umad files, the host that sends for them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <unordered_map>
#include <vector>

#include "emu/config/config.h"
#include "emu/ring/fd.h"
#include "hca/host/host.h"
#include "hca/umad/agents.h"
#include "hca/umad/own_port.h"

namespace hca {

class MadService : public MadOut {
 public:
  MadService(Host& host, const emu::Config& config, const HostOptions& options);

  // `socket`: the program's end is what it writes to and reads from. Open until close().
  MadFileId open(int socket);
  void close(MadFileId file);
  // `answer`: where its program reads what becomes of it; none: it does not ask. False: no language
  // of ours.
  bool write(MadFileId file, std::span<const std::byte> message, const emu::UniqueFd& answer);
  void from_subnet(emu::Lid from, std::uint32_t qpn, std::span<const std::uint8_t> mad) {
    agents_.from_subnet(from, qpn, mad);
  }
  void from_node(emu::NodeId source, const Mad& mad) { agents_.from_node(source, mad); }
  void port_is(bool up);
  void service(std::uint64_t host_ns);

  // MadOut
  bool to_subnet(emu::Lid dlid, std::uint32_t qpn, const Mad& mad) override;
  bool to_node(emu::NodeId dest, const Mad& mad) override { return host_.send_mad(dest, mad); }
  void to_program(MadFileId file, std::span<const std::uint8_t> message) override;
  bool is_closed(MadFileId file) override;

 private:
  void hand_back();
  struct File {
    int socket = -1;
    std::deque<std::vector<std::uint8_t>> waiting;  // messages: its socket is full
    std::size_t waiting_bytes = 0;
  };
  Host& host_;
  MadAgents agents_;
  const OwnPort own_;
  bool up_ = false;
  std::vector<Mad> own_answers_;  // to what is being asked just now
  std::unordered_map<MadFileId, File> files_;
};

}  // namespace hca
