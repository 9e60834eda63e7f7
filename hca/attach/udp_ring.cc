#include "hca/attach/udp_ring.h"

#include <sys/mman.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "emu/base/check.h"

namespace hca {
namespace {

constexpr unsigned kEntries = 8;       // a receive, a send, and room for rearming
constexpr std::uint16_t kBuffers = 8;  // of 64 KiB: few, so that they stay in the cache
constexpr std::uint16_t kGroup = 1;
// What the kernel puts before a message: a header, the address, the control data.
constexpr std::size_t kBufferBytes = sizeof(io_uring_recvmsg_out) + sizeof(sockaddr_in) +
                                     emu::kUdpControlBytes + emu::kUdpMessageBytesMax;
constexpr std::uint64_t kReceive = 1;
constexpr std::uint64_t kSend = 2;
// Taken at a time: a flood of strangers must not stop the node.
constexpr int kTurnCompletions = 64;
constexpr std::size_t kBufferRingBytes = kBuffers * sizeof(io_uring_buf);

}  // namespace

emu::Result<std::unique_ptr<UdpRing>> UdpRing::open(int socket) {
  std::unique_ptr<UdpRing> self(new UdpRing);
  self->socket_ = socket;
  io_uring_params params{};
  params.flags =
      IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_TASKRUN_FLAG;
  if (const int e = io_uring_queue_init_params(kEntries, &self->ring_, &params); e < 0) {
    return emu::fail("io_uring: {}", std::strerror(-e));
  }
  self->have_ring_ = true;
  void* memory =
      ::mmap(nullptr, kBufferRingBytes, PROT_READ | PROT_WRITE, MAP_ANONYMOUS | MAP_PRIVATE, -1, 0);
  if (memory == MAP_FAILED) return emu::fail("io_uring buffers: {}", std::strerror(errno));
  self->buffers_ = static_cast<io_uring_buf_ring*>(memory);
  io_uring_buf_ring_init(self->buffers_);
  io_uring_buf_reg registration{};
  registration.ring_addr = reinterpret_cast<std::uint64_t>(memory);
  registration.ring_entries = kBuffers;
  registration.bgid = kGroup;
  if (const int e = io_uring_register_buf_ring(&self->ring_, &registration, 0); e < 0) {
    return emu::fail("io_uring buffer ring: {}", std::strerror(-e));
  }
  self->bytes_.resize(kBuffers * kBufferBytes);
  for (std::uint16_t i = 0; i < kBuffers; ++i) self->give_buffer(i);
  self->receive_message_.msg_namelen = sizeof(sockaddr_in);
  self->receive_message_.msg_controllen = emu::kUdpControlBytes;
  self->arm_receive();
  self->receive([](std::span<const std::byte>) {});  // nobody knows our address yet
  if (self->receive_error_ == EINVAL || self->receive_error_ == EOPNOTSUPP)
    return emu::fail("io_uring: no multishot recvmsg in this kernel");
  return self;
}

UdpRing::~UdpRing() {
  if (have_ring_) io_uring_queue_exit(&ring_);
  if (buffers_ != nullptr) ::munmap(buffers_, kBufferRingBytes);
}

std::span<std::byte> UdpRing::buffer(std::uint16_t index) {
  return std::span(bytes_).subspan(index * kBufferBytes, kBufferBytes);
}

void UdpRing::give_buffer(std::uint16_t index) {
  io_uring_buf_ring_add(buffers_, buffer(index).data(), kBufferBytes, index,
                        io_uring_buf_ring_mask(kBuffers), 0);
  io_uring_buf_ring_advance(buffers_, 1);
}

io_uring_sqe* UdpRing::entry() {
  io_uring_sqe* sqe = io_uring_get_sqe(&ring_);
  CHECK(sqe != nullptr);  // every entry is submitted at once
  return sqe;
}

void UdpRing::submit() {
  ++counters_.calls_out;
  (void)io_uring_submit(&ring_);  // EINTR, EBUSY: goes with the next one
}

void UdpRing::arm_receive() {
  io_uring_sqe* sqe = entry();
  io_uring_prep_recvmsg_multishot(sqe, socket_, &receive_message_, 0);
  sqe->flags |= IOSQE_BUFFER_SELECT;
  sqe->buf_group = kGroup;
  io_uring_sqe_set_data64(sqe, kReceive);
  armed_ = true;
  submit();
}

void UdpRing::send(emu::UdpAddress to, const emu::Train& train) {
  CHECK(!sending_);
  counters_.datagrams_out += (train.bytes.size() + train.segment - 1) / train.segment;
  send_to_ = to.sockaddr();
  if (!segmentation_ && train.bytes.size() > train.segment) {
    for (std::size_t at = 0; at < train.bytes.size(); at += train.segment) {
      const auto piece = train.bytes.subspan(at, std::min(train.segment, train.bytes.size() - at));
      ++counters_.calls_out;
      if (::sendto(socket_, piece.data(), piece.size(), 0,
                   reinterpret_cast<const sockaddr*>(&send_to_), sizeof send_to_) < 0) {
        ++counters_.refused_out;
      }
    }
    return;
  }
  emu::prepare_train(send_message_, send_vector_, send_control_, send_to_, train);
  io_uring_sqe* sqe = entry();
  io_uring_prep_sendmsg(sqe, socket_, &send_message_, 0);
  io_uring_sqe_set_data64(sqe, kSend);
  sending_ = true;
  submit();
}

bool UdpRing::receive(const Sink& sink) {
  if ((IO_URING_READ_ONCE(*ring_.sq.kflags) & (IORING_SQ_TASKRUN | IORING_SQ_CQ_OVERFLOW)) != 0) {
    ++counters_.calls_in;
    (void)io_uring_get_events(&ring_);
  }
  bool any = false;
  io_uring_cqe* completion = nullptr;
  for (int i = 0;
       i < kTurnCompletions && io_uring_peek_cqe(&ring_, &completion) == 0 && completion != nullptr;
       ++i) {
    const io_uring_cqe copy = *completion;
    io_uring_cqe_seen(&ring_, completion);
    any = any || io_uring_cqe_get_data64(&copy) == kReceive;
    take(copy, sink);
    completion = nullptr;
  }
  if (!armed_) arm_receive();
  return any;
}

void UdpRing::take(const io_uring_cqe& completion, const Sink& sink) {
  if (completion.user_data == kSend) {
    sending_ = false;
    if (completion.res >= 0) return;
    ++counters_.refused_out;
    const bool train = send_message_.msg_controllen != 0;
    if (train &&
        (completion.res == -EINVAL || completion.res == -EIO || completion.res == -EMSGSIZE)) {
      segmentation_ = false;  // the session sends it again
    }
    return;
  }
  if ((completion.flags & IORING_CQE_F_MORE) == 0) armed_ = false;
  receive_error_ = std::max(0, -completion.res);
  if ((completion.flags & IORING_CQE_F_BUFFER) == 0) return;  // an error, and armed anew
  const auto index = static_cast<std::uint16_t>(completion.flags >> IORING_CQE_BUFFER_SHIFT);
  if (completion.res > 0) {
    unpack(buffer(index).first(static_cast<std::size_t>(completion.res)), sink);
  }
  give_buffer(index);
}

void UdpRing::unpack(std::span<std::byte> filled, const Sink& sink) {
  io_uring_recvmsg_out* out =
      io_uring_recvmsg_validate(filled.data(), static_cast<int>(filled.size()), &receive_message_);
  if (out == nullptr) return;
  msghdr message{};
  message.msg_control = static_cast<std::byte*>(io_uring_recvmsg_name(out)) + sizeof(sockaddr_in);
  message.msg_controllen = std::min<std::size_t>(out->controllen, emu::kUdpControlBytes);
  const std::span<const std::byte> bytes(
      static_cast<const std::byte*>(io_uring_recvmsg_payload(out, &receive_message_)),
      io_uring_recvmsg_payload_length(out, static_cast<int>(filled.size()), &receive_message_));
  if (bytes.empty()) return;
  const std::size_t segment = emu::gro_segment(message, bytes.size());
  for (std::size_t at = 0; at < bytes.size(); at += segment) {
    ++counters_.datagrams_in;
    sink(bytes.subspan(at, std::min(segment, bytes.size() - at)));
  }
}

}  // namespace hca
