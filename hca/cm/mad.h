// The messages of the communication manager (IBA volume 1, chapter 12.6) as plain values, and their
// places in a management datagram. parse() believes nothing: every field is read within the 256
// bytes, and who uses a value checks it.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>

#include "hca/host/mad.h"

namespace hca {

// Attribute identifiers of class CommMgt.
enum class CmKind : std::uint16_t {
  req = 0x10,
  mra = 0x11,
  rej = 0x12,
  rep = 0x13,
  rtu = 0x14,
  dreq = 0x15,
  drep = 0x16,
  sidr_req = 0x17,
  sidr_rep = 0x18,
};

inline constexpr std::uint8_t kTransportXrc = 3;  // of a REQ; RC is 0, UC 1

// Reasons of REJ (IBA table 101) that are used here, and states of SIDR_REP (table 113).
inline constexpr std::uint16_t kRejectNoQp = 1;
inline constexpr std::uint16_t kRejectTimeout = 4;
inline constexpr std::uint16_t kRejectInvalidCommId = 6;
inline constexpr std::uint16_t kRejectInvalidService = 8;
inline constexpr std::uint16_t kRejectTransport = 9;
inline constexpr std::uint16_t kRejectStale = 10;
inline constexpr std::uint16_t kRejectConsumer = 28;
inline constexpr std::uint8_t kSidrValid = 0;
inline constexpr std::uint8_t kSidrUnsupported = 1;
inline constexpr std::uint8_t kSidrRejected = 2;

// Room for private data of each message; what is shorter is filled with zeros.
inline constexpr std::size_t kReqPrivateBytes = 92;
inline constexpr std::size_t kRepPrivateBytes = 196;
inline constexpr std::size_t kRejPrivateBytes = 148;
inline constexpr std::size_t kRtuPrivateBytes = 224;
inline constexpr std::size_t kSidrReqPrivateBytes = 216;
inline constexpr std::size_t kSidrRepPrivateBytes = 136;
inline constexpr std::size_t kPrivateBytesMax = kRtuPrivateBytes;

// What REQ, REP and SIDR_REP say of enhanced connection establishment: options of the sender's
// vendor, which mean nothing here and are the programs' own.
struct Ece {
  std::uint32_t vendor_id = 0;  // 24 bits of it cross
  std::uint32_t options = 0;
};

// One message of any kind; which fields it has says its kind.
struct CmMessage {
  CmKind kind = CmKind::req;
  std::uint32_t life = 0;       // of who sends: which start of its node this is
  std::uint32_t local_id = 0;   // of who sends; SIDR: the request id
  std::uint32_t remote_id = 0;  // of who receives; a REQ has none
  std::uint64_t service_id = 0;
  std::uint64_t ca_guid = 0;
  std::uint32_t qpn = 0;
  std::uint32_t qkey = 0;
  std::uint32_t psn = 0;
  std::uint8_t responder_resources = 0;
  std::uint8_t initiator_depth = 0;
  std::uint8_t transport = 0;  // 0 RC, 1 UC, 3 XRC
  std::uint8_t retry_count = 0;
  std::uint8_t rnr_retry_count = 0;
  std::uint8_t path_mtu = 0;  // IBV_MTU_*
  std::uint8_t sl = 0;
  std::uint8_t ack_timeout = 0;
  bool flow_control = false;
  bool srq = false;
  std::uint16_t local_lid = 0;
  std::uint16_t remote_lid = 0;
  std::array<std::uint8_t, 16> local_gid{};
  std::array<std::uint8_t, 16> remote_gid{};
  std::uint16_t reason = 0;   // REJ; SIDR_REP: status
  std::uint8_t rejected = 0;  // REJ, MRA: 0 REQ, 1 REP, 2 another
  std::uint8_t service_timeout = 0;
  Ece ece;
  std::array<std::uint8_t, kPrivateBytesMax> private_data{};
};

std::size_t private_bytes(CmKind kind);

Mad to_mad(const CmMessage& message);
std::optional<CmMessage> parse(const Mad& mad);

// The header that rdma_cm puts before a program's private data of REQ and SIDR_REQ (IBA annex A11).
inline constexpr std::size_t kIpHeaderBytes = 36;

}  // namespace hca
