#include "hca/cm/mad.h"

#include <algorithm>
#include <cstring>

namespace hca {

namespace {

// Management header (IBA 13.4.2): 24 bytes, then the message.
constexpr std::size_t kHeaderBytes = 24;
constexpr std::uint8_t kClassCommMgt = 0x07;
constexpr std::size_t kLifeOffset = 8;       // of the transaction identifier
constexpr std::size_t kModifierOffset = 20;  // of the attribute: the options of ECE

// Big-endian numbers of a message, written or read at their offsets behind the header.
class Writer {
 public:
  explicit Writer(Mad& mad) : at_(mad.data() + kHeaderBytes) {}
  void number(std::size_t offset, std::size_t bytes, std::uint64_t value) {
    for (std::size_t i = 0; i < bytes; ++i) {
      at_[offset + i] = static_cast<std::uint8_t>(value >> 8 * (bytes - 1 - i));
    }
  }
  void bytes(std::size_t offset, std::span<const std::uint8_t> from) {
    std::copy(from.begin(), from.end(), at_ + offset);
  }

 private:
  std::uint8_t* at_;
};

class Reader {
 public:
  explicit Reader(const Mad& mad) : at_(mad.data() + kHeaderBytes) {}
  std::uint64_t number(std::size_t offset, std::size_t bytes) const {
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < bytes; ++i) value = value << 8 | at_[offset + i];
    return value;
  }
  std::uint32_t u32(std::size_t offset) const {
    return static_cast<std::uint32_t>(number(offset, 4));
  }
  std::uint32_t u24(std::size_t offset) const {
    return static_cast<std::uint32_t>(number(offset, 3));
  }
  std::uint16_t u16(std::size_t offset) const {
    return static_cast<std::uint16_t>(number(offset, 2));
  }
  std::uint8_t u8(std::size_t offset) const { return at_[offset]; }
  void bytes(std::size_t offset, std::span<std::uint8_t> to) const {
    std::copy_n(at_ + offset, to.size(), to.begin());
  }

 private:
  const std::uint8_t* at_;
};

std::size_t private_offset(CmKind kind) {
  switch (kind) {
    case CmKind::req:
      return 140;
    case CmKind::rep:
      return 36;
    case CmKind::rej:
      return 84;
    case CmKind::sidr_req:
      return 16;
    case CmKind::sidr_rep:
      return 96;
    case CmKind::dreq:
      return 12;
    case CmKind::mra:
      return 10;
    default:
      return 8;
  }
}

// IBA table 96.
void write_req(const CmMessage& m, Writer& w) {
  const bool xrc = m.transport == kTransportXrc;
  w.number(5, 3, m.ece.vendor_id);
  w.number(8, 8, m.service_id);
  w.number(16, 8, m.ca_guid);
  w.number(28, 4, m.qkey);
  w.number(32, 3, m.qpn);
  w.number(35, 1, m.responder_resources);
  w.number(39, 1, m.initiator_depth);
  constexpr std::uint64_t kResponseTimeout = 20;
  w.number(43, 1, kResponseTimeout << 3 | (m.transport & 3u) << 1 | (m.flow_control ? 1u : 0u));
  w.number(44, 3, m.psn);
  w.number(47, 1, kResponseTimeout << 3 | (m.retry_count & 7u));
  w.number(48, 2, 0xffff);
  w.number(50, 1, static_cast<std::uint64_t>(m.path_mtu) << 4 | (m.rnr_retry_count & 7u));
  constexpr std::uint64_t kMaxRetries = 15;
  w.number(51, 1, kMaxRetries << 4 | (m.srq ? 8u : 0u) | (xrc ? 1u : 0u));
  w.number(52, 2, m.local_lid);
  w.number(54, 2, m.remote_lid);
  w.bytes(56, m.local_gid);
  w.bytes(72, m.remote_gid);
  w.number(94, 1, static_cast<std::uint64_t>(m.sl) << 4 | 8u);  // subnet local
  w.number(95, 1, static_cast<std::uint64_t>(m.ack_timeout) << 3);
}

void read_req(const Reader& r, CmMessage& m) {
  m.ece.vendor_id = r.u24(5);
  m.service_id = r.number(8, 8);
  m.ca_guid = r.number(16, 8);
  m.qkey = r.u32(28);
  m.qpn = r.u24(32);
  m.responder_resources = r.u8(35);
  m.initiator_depth = r.u8(39);
  m.transport = r.u8(43) >> 1 & 3;
  m.flow_control = (r.u8(43) & 1) != 0;
  m.psn = r.u24(44);
  m.retry_count = r.u8(47) & 7;
  m.path_mtu = r.u8(50) >> 4;
  m.rnr_retry_count = r.u8(50) & 7;
  m.srq = (r.u8(51) & 8) != 0;
  m.local_lid = r.u16(52);
  m.remote_lid = r.u16(54);
  r.bytes(56, m.local_gid);
  r.bytes(72, m.remote_gid);
  m.sl = r.u8(94) >> 4;
  m.ack_timeout = r.u8(95) >> 3;
}

// IBA table 103.
void write_rep(const CmMessage& m, Writer& w) {
  w.number(8, 4, m.qkey);
  w.number(12, 3, m.qpn);
  w.number(15, 1, m.ece.vendor_id >> 16);
  w.number(19, 1, m.ece.vendor_id >> 8);
  w.number(20, 3, m.psn);
  w.number(23, 1, m.ece.vendor_id);
  w.number(24, 1, m.responder_resources);
  w.number(25, 1, m.initiator_depth);
  w.number(26, 1, m.flow_control ? 1 : 0);
  w.number(27, 1, static_cast<std::uint64_t>(m.rnr_retry_count) << 5 | (m.srq ? 16u : 0u));
  w.number(28, 8, m.ca_guid);
}

void read_rep(const Reader& r, CmMessage& m) {
  m.qkey = r.u32(8);
  m.qpn = r.u24(12);
  m.psn = r.u24(20);
  m.ece.vendor_id = std::uint32_t{r.u8(15)} << 16 | std::uint32_t{r.u8(19)} << 8 | r.u8(23);
  m.responder_resources = r.u8(24);
  m.initiator_depth = r.u8(25);
  m.flow_control = (r.u8(26) & 1) != 0;
  m.rnr_retry_count = r.u8(27) >> 5;
  m.srq = (r.u8(27) & 16) != 0;
  m.ca_guid = r.number(28, 8);
}

// What stands between the identifiers and the private data.
void write_body(const CmMessage& m, Writer& w) {
  switch (m.kind) {
    case CmKind::req:
      write_req(m, w);
      break;
    case CmKind::rep:
      write_rep(m, w);
      break;
    case CmKind::rej:
      w.number(8, 1, static_cast<std::uint64_t>(m.rejected) << 6);
      w.number(10, 2, m.reason);
      break;
    case CmKind::mra:
      w.number(8, 1, static_cast<std::uint64_t>(m.rejected) << 6);
      w.number(9, 1, static_cast<std::uint64_t>(m.service_timeout) << 3);
      break;
    case CmKind::dreq:
      w.number(8, 3, m.qpn);
      break;
    case CmKind::sidr_req:
      w.number(4, 2, 0xffff);
      w.number(8, 8, m.service_id);
      break;
    case CmKind::sidr_rep:
      w.number(4, 1, m.reason);
      w.number(6, 2, m.ece.vendor_id >> 8);
      w.number(8, 3, m.qpn);
      w.number(11, 1, m.ece.vendor_id);
      w.number(12, 8, m.service_id);
      w.number(20, 4, m.qkey);
      break;
    default:
      break;
  }
}

void read_body(const Reader& r, CmMessage& m) {
  switch (m.kind) {
    case CmKind::req:
      read_req(r, m);
      break;
    case CmKind::rep:
      read_rep(r, m);
      break;
    case CmKind::rej:
      m.rejected = r.u8(8) >> 6;
      m.reason = r.u16(10);
      break;
    case CmKind::mra:
      m.rejected = r.u8(8) >> 6;
      m.service_timeout = r.u8(9) >> 3;
      break;
    case CmKind::dreq:
      m.qpn = r.u24(8);
      break;
    case CmKind::sidr_req:
      m.service_id = r.number(8, 8);
      break;
    case CmKind::sidr_rep:
      m.reason = r.u8(4);
      m.ece.vendor_id = std::uint32_t{r.u16(6)} << 8 | r.u8(11);
      m.qpn = r.u24(8);
      m.service_id = r.number(12, 8);
      m.qkey = r.u32(20);
      break;
    default:
      break;
  }
}

bool has_ece(CmKind kind) {
  return kind == CmKind::req || kind == CmKind::rep || kind == CmKind::sidr_rep;
}

bool has_remote_id(CmKind kind) {
  return kind != CmKind::req && kind != CmKind::sidr_req && kind != CmKind::sidr_rep;
}

}  // namespace

std::size_t private_bytes(CmKind kind) {
  return std::min(kMadBytes - kHeaderBytes - private_offset(kind), kPrivateBytesMax);
}

Mad to_mad(const CmMessage& m) {
  Mad mad{};
  mad[0] = kMadBaseVersion;
  mad[1] = kClassCommMgt;
  mad[2] = kMadClassVersion;
  mad[3] = kMadSend;
  // The transaction: its upper half is the sender's (IBA 13.4.6.4) and names its life, the lower
  // half says which exchange this belongs to; only people look at that.
  for (std::size_t i = 0; i < 4; ++i) {
    mad[kLifeOffset + i] = static_cast<std::uint8_t>(m.life >> (24 - 8 * i));
    mad[kLifeOffset + 4 + i] = static_cast<std::uint8_t>(m.local_id >> (24 - 8 * i));
  }
  mad[16] = 0;
  mad[17] = static_cast<std::uint8_t>(m.kind);
  Writer w(mad);
  w.number(0, 4, m.local_id);
  if (has_remote_id(m.kind)) w.number(4, 4, m.remote_id);
  for (std::size_t i = 0; i < 4 && has_ece(m.kind); ++i) {
    mad[kModifierOffset + i] = static_cast<std::uint8_t>(m.ece.options >> (24 - 8 * i));
  }
  write_body(m, w);
  w.bytes(private_offset(m.kind), {m.private_data.data(), private_bytes(m.kind)});
  return mad;
}

std::optional<CmMessage> parse(const Mad& mad) {
  if (mad[0] != kMadBaseVersion || mad[1] != kClassCommMgt || mad[2] != kMadClassVersion ||
      mad[3] != kMadSend || mad[16] != 0 || mad[17] < 0x10 || mad[17] > 0x18) {
    return std::nullopt;
  }
  CmMessage m;
  m.kind = static_cast<CmKind>(mad[17]);
  for (std::size_t i = 0; i < 4; ++i) m.life = m.life << 8 | mad[kLifeOffset + i];
  const Reader r(mad);
  m.local_id = r.u32(0);
  if (has_remote_id(m.kind)) m.remote_id = r.u32(4);
  for (std::size_t i = 0; i < 4 && has_ece(m.kind); ++i) {
    m.ece.options = m.ece.options << 8 | mad[kModifierOffset + i];
  }
  read_body(r, m);
  r.bytes(private_offset(m.kind), {m.private_data.data(), private_bytes(m.kind)});
  return m;
}

}  // namespace hca
