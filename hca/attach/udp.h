// Attachment over UDP, for an hcad on another host than fabricd: the session of emu/wire/session on
// a socket driven by io_uring (or by plain calls where io_uring is forbidden).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "emu/base/result.h"
#include "emu/wire/key.h"
#include "emu/wire/session.h"
#include "hca/attach/attach.h"

namespace hca {

struct UdpAttachOptions {
  std::string fabric;        // "HOST:PORT" of fabricd
  std::string node_name;     // as in the configuration; the fabric answers with its NodeId
  emu::Key cluster_key{};    // emu::read_key_file
  std::uint32_t mtu = 1500;  // IP packets of the path
  std::uint64_t heartbeat_ns = 50'000'000;
  std::uint64_t dead_ns = 700'000'000;  // silence after which the state is `down`
  bool io_uring = true;                 // false: plain socket calls
  std::optional<emu::Terms> terms{};    // as the configuration here has them; none: any
  std::string doubt{};                  // what else may be wrong where nobody answers
};

// Fails only if the address does not resolve or no socket can be had; otherwise the state is `down`
// until service() has reached the fabric.
emu::Result<std::unique_ptr<Attachment>> make_udp_attachment(const UdpAttachOptions& options);

}  // namespace hca
