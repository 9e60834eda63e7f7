#include "tools/replay/sink.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace tools {

emu::Result<void> Sink::open(const Device& device, const CompletionQueue& cq, std::uint64_t wr_base,
                             const Endpoint& remote, std::uint8_t sl,
                             std::uint32_t message_bytes_max) {
  wr_base_ = wr_base;
  counts_ = {};  // a sender that was started again counts from 0
  meter_ = DeadlineMeter();
  meter_set_ = false;
  assembly_ = {};
  frames_sent_.reset();
  constexpr std::size_t kLine = 64;
  buffer_bytes_ =
      (std::max<std::size_t>(message_bytes_max, kFrameHeaderBytes) + kLine - 1) / kLine * kLine;
  auto buffers =
      Region::create(device, "flitnet-sink", buffer_bytes_ * kBuffers, IBV_ACCESS_LOCAL_WRITE);
  if (!buffers) return std::unexpected(buffers.error());
  buffers_ = *std::move(buffers);
  auto qp = create_qp(device, IBV_QPT_RC, cq, cq, {.sends = 1, .receives = kBuffers});
  if (!qp) return std::unexpected(qp.error());
  qp_ = *std::move(qp);
  endpoint_ = device.endpoint(*qp_, ~remote.psn & 0xffffff);
  for (std::uint32_t buffer = 0; buffer < kBuffers; ++buffer) {
    if (auto posted = post(buffer); !posted) return posted;
  }
  if (auto up = connect_rc(qp_.get(), device, remote, sl, endpoint_.psn); !up) return up;
  state_ = SinkState::open;
  return {};
}

emu::Result<void> Sink::post(std::uint32_t buffer) {
  ibv_sge sge = buffers_.sge(buffer * buffer_bytes_, buffer_bytes_);
  ibv_recv_wr wr{};
  wr.wr_id = wr_base_ + buffer;
  wr.sg_list = &sge;
  wr.num_sge = 1;
  ibv_recv_wr* bad = nullptr;
  const int error = ibv_post_recv(qp_.get(), &wr, &bad);
  if (error != 0) return emu::fail("cannot post a receive: {}", std::strerror(error));
  return {};
}

void Sink::complete(const Device& device, const Completion& completion) {
  if (over() || completion.qpn != endpoint_.qpn) return;
  if (completion.status != IBV_WC_SUCCESS) {
    set_state(SinkState::failed, ibv_wc_status_str(completion.status));
    return;
  }
  const auto buffer = static_cast<std::uint32_t>(completion.wr_id - wr_base_);
  if (buffer >= kBuffers || completion.bytes > buffer_bytes_) {
    set_state(SinkState::failed, "the device completed a receive that was not posted");
    return;
  }
  take(device, buffers_.bytes().subspan(buffer * buffer_bytes_, completion.bytes),
       completion.time_ns);
  if (auto posted = post(buffer); !posted) set_state(SinkState::failed, posted.error().message);
}

void Sink::take(const Device& device, std::span<const std::uint8_t> message,
                emu::EmuNs arrival_ns) {
  const auto header = read_frame_header(message);
  if (!header || header->stream != stream_hash(plan_.name)) {
    ++counts_.headers_corrupt;
    counts_.bytes_corrupt += std::max<std::uint64_t>(message.size(), 1);
    return;
  }
  const auto piece = message.subspan(kFrameHeaderBytes);
  if (header->offset == 0) begin(device, *header);
  if (!continues(*header)) return;
  counts_.bytes_corrupt += corrupt_bytes(*header, piece);
  counts_.bytes += piece.size();
  if (clip_ == nullptr) assembly_.crc = crc32c(piece, assembly_.crc);
  assembly_.have += header->bytes;
  if (assembly_.have == header->frame_bytes) finish_frame(*header, arrival_ns);
}

void Sink::begin(const Device& device, const FrameHeader& header) {
  assembly_ = {.open = true, .number = header.number};
  if (meter_set_) return;
  meter_set_ = true;
  // The first deadline: one frame time after the first frame's time, if both clocks are one.
  const bool one_clock = (header.flags & kFrameClockEmulated) != 0 && device.has_launch();
  const FrameRate rate{.frames = header.rate_frames, .seconds = header.rate_seconds};
  meter_ = DeadlineMeter(rate,
                         one_clock ? std::optional(header.frame_ns + rate.ns_of(1)) : std::nullopt);
}

// RC delivers in order and once; what does not fit was doubled, if it is here already, or follows
// something lost. A frame that is finished has all its bytes, one whose beginning is missing none.
bool Sink::continues(const FrameHeader& header) {
  if (assembly_.open && header.number == assembly_.number && header.offset == assembly_.have) {
    return true;
  }
  const bool is_here =
      header.number == assembly_.number && header.offset + header.bytes <= assembly_.have;
  if (header.number < assembly_.number || is_here) ++counts_.duplicated;
  return false;  // the rest of a frame whose beginning is missing: the frame will count as lost
}

void Sink::finish_frame(const FrameHeader& header, emu::EmuNs arrival_ns) {
  assembly_.open = false;
  if (clip_ == nullptr && assembly_.crc != header.frame_crc) {
    counts_.bytes_corrupt += std::max(header.frame_bytes, 1U);
  }
  const std::uint64_t repeated = meter_.repeated();
  meter_.arrive(header.number, arrival_ns);
  if (meter_.repeated() > repeated) {
    ++counts_.duplicated;
    return;
  }
  ++counts_.frames;
  counts_.lost = meter_.skipped();
}

std::uint64_t Sink::corrupt_bytes(const FrameHeader& header,
                                  std::span<const std::uint8_t> piece) const {
  if (clip_ == nullptr) return 0;  // judged by the checksum when the frame is whole
  const auto& frames = clip_->clip.frames;
  const std::size_t wanted = (plan_.frame + header.number) % frames.size();
  const auto whole = clip_->frame(wanted);
  if (header.clip_frame != wanted || header.frame_bytes != whole.size()) {
    return std::max<std::uint64_t>(piece.size(), 1);
  }
  const auto good = whole.subspan(header.offset, piece.size());
  if (std::memcmp(piece.data(), good.data(), good.size()) == 0) return 0;
  std::uint64_t different = 0;
  for (std::size_t i = 0; i < good.size(); ++i) different += piece[i] != good[i] ? 1 : 0;
  return different;
}

void Sink::end(std::uint64_t frames_sent) {
  frames_sent_ = frames_sent;
  if (state_ == SinkState::open) state_ = SinkState::ending;
}

bool Sink::settle() {
  if (state_ != SinkState::ending) return false;
  if (counts_.frames < frames_sent_.value_or(0)) return false;
  give_up();
  return true;
}

void Sink::give_up() {
  if (frames_sent_ && *frames_sent_ > counts_.frames) {
    counts_.lost = *frames_sent_ - counts_.frames;
  }
  state_ = SinkState::done;
  qp_.reset();
}

void Sink::set_rejected(int router, std::string why) {
  rejected_by_ = router;
  set_state(SinkState::rejected, std::move(why));
}

void Sink::set_state(SinkState state, std::string why) {
  state_ = state;
  why_ = std::move(why);
  if (over()) qp_.reset();
}

}  // namespace tools
