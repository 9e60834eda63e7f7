#include "emu/wire/udp_socket.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/udp.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <vector>

#include "emu/base/check.h"

namespace emu {
namespace {

// Two windows of frames with the kernel's overhead. Unprivileged, the kernel grants what
// net.core.rmem_max allows; what does not fit is lost on the way and repeated.
constexpr int kSocketBytes = 4 << 20;

void set_buffer(int fd, int force, int plain) {
  if (::setsockopt(fd, SOL_SOCKET, force, &kSocketBytes, sizeof kSocketBytes) != 0) {
    (void)::setsockopt(fd, SOL_SOCKET, plain, &kSocketBytes, sizeof kSocketBytes);
  }
}

std::size_t segments_of(const Train& train) {
  return (train.bytes.size() + train.segment - 1) / train.segment;
}

}  // namespace

Result<UdpAddress> UdpAddress::resolve(std::string_view text) {
  const auto colon = text.rfind(':');
  if (colon == std::string_view::npos) return fail("address '{}': wants HOST:PORT", text);
  const std::string host(text.substr(0, colon));
  const std::string_view digits = text.substr(colon + 1);
  std::uint16_t port = 0;
  const auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), port);
  if (parsed.ec != std::errc{} || parsed.ptr != digits.data() + digits.size()) {
    return fail("address '{}': port '{}' is not a number up to 65535", text, digits);
  }
  addrinfo hints{};
  hints.ai_family = AF_INET;
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  const int error = ::getaddrinfo(host.c_str(), nullptr, &hints, &found);
  if (error != 0) return fail("address '{}': {}", text, ::gai_strerror(error));
  sockaddr_in first{};
  std::memcpy(&first, found->ai_addr, sizeof first);
  ::freeaddrinfo(found);
  return UdpAddress{first.sin_addr.s_addr, htons(port)};
}

sockaddr_in UdpAddress::sockaddr() const {
  sockaddr_in out{};
  out.sin_family = AF_INET;
  out.sin_addr.s_addr = ip;
  out.sin_port = port;
  return out;
}

std::string UdpAddress::text() const {
  const auto* b = reinterpret_cast<const std::uint8_t*>(&ip);
  return fmt::format("{}.{}.{}.{}:{}", b[0], b[1], b[2], b[3], ntohs(port));
}

Result<UniqueFd> open_udp_socket(UdpAddress local) {
  UniqueFd fd(::socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd) return fail("UDP socket: {}", std::strerror(errno));
  const sockaddr_in address = local.sockaddr();
  if (::bind(fd.get(), reinterpret_cast<const struct sockaddr*>(&address), sizeof address) != 0) {
    return fail("UDP address {}: {}", local.text(), std::strerror(errno));
  }
  set_buffer(fd.get(), SO_RCVBUFFORCE, SO_RCVBUF);
  set_buffer(fd.get(), SO_SNDBUFFORCE, SO_SNDBUF);
  // Absent before Linux 5.0: then every datagram comes by itself.
  const int on = 1;
  (void)::setsockopt(fd.get(), IPPROTO_UDP, UDP_GRO, &on, sizeof on);
  // A path with a smaller MTU than configured fragments; the session need not know.
  const int discover = IP_PMTUDISC_DONT;
  (void)::setsockopt(fd.get(), IPPROTO_IP, IP_MTU_DISCOVER, &discover, sizeof discover);
  return fd;
}

Result<UdpAddress> local_address(int fd) {
  sockaddr_in address{};
  socklen_t size = sizeof address;
  if (::getsockname(fd, reinterpret_cast<struct sockaddr*>(&address), &size) != 0) {
    return fail("UDP socket: {}", std::strerror(errno));
  }
  return UdpAddress::of(address);
}

std::size_t gro_segment(const msghdr& message, std::size_t bytes) {
  auto* header = const_cast<msghdr*>(&message);
  for (cmsghdr* c = CMSG_FIRSTHDR(header); c != nullptr; c = CMSG_NXTHDR(header, c)) {
    if (c->cmsg_level != IPPROTO_UDP || c->cmsg_type != UDP_GRO) continue;
    int segment = 0;
    std::memcpy(&segment, CMSG_DATA(c), sizeof segment);
    if (segment > 0) return static_cast<std::size_t>(segment);
  }
  return bytes;
}

void prepare_train(msghdr& message, iovec& vector, std::span<std::byte, kUdpControlBytes> control,
                   sockaddr_in& to, const Train& train) {
  message = {};
  vector = {const_cast<std::byte*>(train.bytes.data()), train.bytes.size()};
  message.msg_name = &to;
  message.msg_namelen = sizeof to;
  message.msg_iov = &vector;
  message.msg_iovlen = 1;
  if (train.bytes.size() <= train.segment) return;
  message.msg_control = control.data();
  message.msg_controllen = CMSG_SPACE(sizeof(std::uint16_t));
  cmsghdr* c = CMSG_FIRSTHDR(&message);
  c->cmsg_level = IPPROTO_UDP;
  c->cmsg_type = UDP_SEGMENT;
  c->cmsg_len = CMSG_LEN(sizeof(std::uint16_t));
  const auto segment = static_cast<std::uint16_t>(train.segment);
  std::memcpy(CMSG_DATA(c), &segment, sizeof segment);
}

struct UdpSocket::Batch {
  std::vector<std::byte> bytes = std::vector<std::byte>(kReceiveBatch * kUdpMessageBytesMax);
  std::array<mmsghdr, kBatch> messages{};
  std::array<iovec, kBatch> vectors{};
  std::array<sockaddr_in, kBatch> addresses{};
  struct alignas(cmsghdr) Control {
    std::array<std::byte, kUdpControlBytes> bytes;
  };
  std::array<Control, kBatch> controls{};
};

UdpSocket::UdpSocket(UniqueFd fd) : fd_(std::move(fd)), batch_(std::make_unique<Batch>()) {}
UdpSocket::~UdpSocket() = default;
UdpSocket::UdpSocket(UdpSocket&&) noexcept = default;
UdpSocket& UdpSocket::operator=(UdpSocket&&) noexcept = default;

void UdpSocket::send_single(const UdpAddress& to, const Train& train) {
  const sockaddr_in address = to.sockaddr();
  for (std::size_t at = 0; at < train.bytes.size(); at += train.segment) {
    const auto piece = train.bytes.subspan(at, std::min(train.segment, train.bytes.size() - at));
    ++counters_.calls_out;
    ++counters_.datagrams_out;
    if (::sendto(fd_.get(), piece.data(), piece.size(), 0,
                 reinterpret_cast<const struct sockaddr*>(&address), sizeof address) < 0) {
      ++counters_.refused_out;
    }
  }
}

void UdpSocket::send(std::span<const Outgoing> batch) {
  CHECK(batch.size() <= kBatch);
  Batch& b = *batch_;
  std::size_t count = 0;
  for (const Outgoing& out : batch) {
    if (!segmentation_ && out.train.bytes.size() > out.train.segment) {
      send_single(out.to, out.train);
      continue;
    }
    b.addresses[count] = out.to.sockaddr();
    prepare_train(b.messages[count].msg_hdr, b.vectors[count],
                  std::span<std::byte, kUdpControlBytes>(b.controls[count].bytes),
                  b.addresses[count], out.train);
    counters_.datagrams_out += segments_of(out.train);
    ++count;
  }
  for (std::size_t sent = 0; sent < count;) {
    const int n = ::sendmmsg(fd_.get(), &b.messages[sent], static_cast<unsigned>(count - sent), 0);
    ++counters_.calls_out;
    if (n > 0) {
      sent += static_cast<std::size_t>(n);
      continue;
    }
    const int error = errno;
    const msghdr& refused = b.messages[sent].msg_hdr;
    ++counters_.refused_out;
    ++sent;
    if (refused.msg_controllen != 0 && (error == EINVAL || error == EIO || error == EMSGSIZE)) {
      segmentation_ = false;  // no checksum offload on this path, or segments above its MTU
    }
    if (error == EAGAIN || error == ENOBUFS) return;  // full: the rest would be refused as well
  }
}

std::size_t UdpSocket::receive(const Sink& sink) {
  Batch& b = *batch_;
  for (std::size_t i = 0; i < kReceiveBatch; ++i) {
    b.vectors[i] = {&b.bytes[i * kUdpMessageBytesMax], kUdpMessageBytesMax};
    msghdr& message = b.messages[i].msg_hdr;
    message = {};
    message.msg_name = &b.addresses[i];
    message.msg_namelen = sizeof(sockaddr_in);
    message.msg_iov = &b.vectors[i];
    message.msg_iovlen = 1;
    message.msg_control = b.controls[i].bytes.data();
    message.msg_controllen = kUdpControlBytes;
  }
  const int n = ::recvmmsg(fd_.get(), b.messages.data(), kReceiveBatch, MSG_DONTWAIT, nullptr);
  ++counters_.calls_in;
  if (n <= 0) return 0;
  for (std::size_t i = 0; i < static_cast<std::size_t>(n); ++i) {
    const std::span<const std::byte> bytes(&b.bytes[i * kUdpMessageBytesMax],
                                           b.messages[i].msg_len);
    const UdpAddress from = UdpAddress::of(b.addresses[i]);
    const std::size_t segment = gro_segment(b.messages[i].msg_hdr, bytes.size());
    for (std::size_t at = 0; at < bytes.size(); at += segment) {
      ++counters_.datagrams_in;
      sink(from, bytes.subspan(at, std::min(segment, bytes.size() - at)));
    }
  }
  return static_cast<std::size_t>(n);
}

}  // namespace emu
