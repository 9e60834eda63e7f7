#include "tools/replay/sender.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace tools {

emu::Result<void> Sender::open(const Device& device, const CompletionQueue& cq,
                               std::uint64_t wr_base) {
  wr_base_ = wr_base;
  auto qp = create_qp(device, IBV_QPT_RC, cq, cq, {.sends = kSlots, .receives = 1, .send_sges = 2});
  if (!qp) return std::unexpected(qp.error());
  qp_ = *std::move(qp);
  auto headers = Region::create(device, "flitnet-headers", kSlots * kFrameHeaderBytes, 0);
  if (!headers) return std::unexpected(headers.error());
  headers_ = *std::move(headers);
  endpoint_ = device.endpoint(*qp_, static_cast<std::uint32_t>(stream_hash(plan_.name)) & 0xffffff);
  return {};
}

emu::Result<void> Sender::connect(const Device& device, const Endpoint& remote) {
  if (auto done = connect_rc(qp_.get(), device, remote, options_.sl, endpoint_.psn); !done) {
    return done;
  }
  state_ = SendState::asking;
  return {};
}

void Sender::ask(const Device& device) {
  admitted_ = true;
  state_ = SendState::connected;
  if (!options_.admission) return;
  ClipRate need = rate_of(clip_->clip, plan_.rate, options_.cut);
  // A connection has credits for three bursts (hca/host/credit.cc), and a piece needs all of its
  // own at once: one leaves, one waits, one is being posted. Only frames of more than two bursts,
  // less than 15 a second, are cut smaller by this.
  FrameCut& cut = options_.cut;
  const std::uint64_t burst = need.burst_bytes() / cut.shape.link_bytes_of(cut.shape.payload_bytes);
  if (2 * burst < std::min(cut.packets, need.packets_max)) {
    cut.packets = std::max<std::uint32_t>(1, static_cast<std::uint32_t>(burst));
    need = rate_of(clip_->clip, plan_.rate, cut);
  }
  ibv_qp_rate_limit_attr limit{};
  limit.rate_limit = static_cast<std::uint32_t>((need.mean_bps + 999) / 1000);  // kb/s
  limit.max_burst_sz = static_cast<std::uint32_t>(need.burst_bytes());
  limit.typical_pkt_sz =
      static_cast<std::uint16_t>(cut.shape.payload_bytes + cut.shape.header_bytes);
  const int error = ibv_modify_qp_rate_limit(qp_.get(), &limit);
  if (error == 0 || error == EOPNOTSUPP) return;  // hardware without pacing admits everybody
  admitted_ = false;
  rejected_by_ = device.rejected_by(qp_.get());
  state_ = SendState::rejected;
  why_ = rejected_by_ >= 0    ? "rejected by router " + std::to_string(rejected_by_)
         : rejected_by_ == -2 ? "rejected by the HCA: its own link has too little left"
                              : std::string("rejected: ") + std::strerror(error);
  qp_.reset();
}

void Sender::start(emu::EmuNs start_ns, std::uint64_t frames) {
  start_ns_ = start_ns + std::uint64_t{plan_.phase_us} * 1000;
  frames_wanted_ = frames;
  state_ = frames == 0 ? SendState::done : SendState::running;
}

emu::EmuNs Sender::next_post_ns(const Device& device) const {
  if (state_ != SendState::running) return ~emu::EmuNs{0};
  const emu::EmuNs time = frame_ns(counts_.frames);
  // Without launch times the post is the launch.
  const emu::EmuNs ahead = device.has_launch() ? std::uint64_t{options_.ahead_ms} * 1'000'000 : 0;
  return time > ahead ? time - ahead : 0;
}

emu::Result<void> Sender::tick(const Device& device, emu::EmuNs now_ns) {
  while (state_ == SendState::running && next_post_ns(device) <= now_ns && outstanding() < kSlots) {
    const auto posted = post(device, now_ns);
    if (!posted) return std::unexpected(posted.error());
    if (*posted == Posted::no_credit) {
      if (auto waited = wait_for_credit(now_ns); !waited) return waited;
      break;
    }
    refused_since_ns_ = 0;
    if (counts_.frames == frames_wanted_ || (stopping_ && offset_ == 0)) {
      state_ = SendState::draining;
    }
  }
  if (state_ == SendState::draining && counts_.completed == counts_.frames) {
    state_ = SendState::done;
  }
  return {};
}

emu::Result<void> Sender::wait_for_credit(emu::EmuNs now_ns) {
  ++counts_.credit_refusals;
  // With nothing outstanding all credits are home: a piece refused then is refused for ever.
  constexpr emu::EmuNs kPatienceNs = 200'000'000;
  if (outstanding() > 0 || refused_since_ns_ == 0)
    refused_since_ns_ = std::max<emu::EmuNs>(now_ns, 1);
  if (now_ns - refused_since_ns_ < kPatienceNs) return {};
  if (options_.cut.packets == 1) return emu::fail("not a single packet finds a credit");
  // Smaller pieces need fewer credits at once.
  options_.cut.packets = std::max(options_.cut.packets / 2, 1U);
  packet_ = 0;
  for (std::uint32_t at = 0; at < offset_; at += options_.cut.piece_bytes_max()) {
    packet_ +=
        options_.cut.packets_of_piece(std::min(options_.cut.piece_bytes_max(), offset_ - at));
  }
  refused_since_ns_ = 0;
  return {};
}

void Sender::prepare(const Device& device, std::span<std::uint8_t> header,
                     std::uint32_t bytes) const {
  const Frame& frame = clip_->clip.frames[frame_index()];
  write_frame_header({.type = static_cast<char>(frame.type),
                      .flags = device.has_launch() ? kFrameClockEmulated : std::uint8_t{0},
                      .stream = stream_hash(plan_.name),
                      .number = counts_.frames,
                      .clip_frame = static_cast<std::uint32_t>(frame_index()),
                      .frame_bytes = frame.bytes,
                      .frame_ns = frame_ns(counts_.frames),
                      .frame_crc = clip_->crcs[frame_index()],
                      .offset = offset_,
                      .bytes = bytes,
                      .rate_frames = static_cast<std::uint16_t>(plan_.rate.frames),
                      .rate_seconds = static_cast<std::uint16_t>(plan_.rate.seconds)},
                     header.first<kFrameHeaderBytes>());
}

emu::Result<Sender::Posted> Sender::post(const Device& device, emu::EmuNs now_ns) {
  const Frame& frame = clip_->clip.frames[frame_index()];
  const FrameCut& cut = options_.cut;
  const std::uint32_t bytes = std::min(cut.piece_bytes_max(), frame.bytes - offset_);
  const bool last = offset_ + bytes == frame.bytes;
  const std::size_t slot = pieces_posted_ % kSlots * kFrameHeaderBytes;
  prepare(device, headers_.bytes().subspan(slot, kFrameHeaderBytes), bytes);
  const LaunchPlan launch =
      plan_launch(frame_ns(counts_.frames), plan_.rate, cut.packets_of(frame.bytes),
                  options_.slack_us * 1000, packet_, cut.packets_of_piece(bytes));
  ibv_sge sges[2] = {headers_.sge(slot, kFrameHeaderBytes),
                     clip_->region.sge(frame.offset + offset_, bytes)};
  ibv_send_wr wr{};
  const bool signalled = last || unsignalled_ + 1 == kSignalEvery;
  wr.wr_id = wr_base_ | (unsignalled_ + 1) | (last ? kFrameEnd : 0);
  wr.sg_list = sges;
  wr.num_sge = bytes == 0 ? 1 : 2;
  wr.opcode = IBV_WR_SEND;
  wr.send_flags = signalled ? unsigned{IBV_SEND_SIGNALED} : 0U;
  if (const int error = device.set_launch(qp_.get(), launch.launch_ns, launch.span_ns);
      error != 0) {
    return emu::fail("cannot set a launch time: {}", std::strerror(error));
  }
  ibv_send_wr* bad = nullptr;
  const int error = ibv_post_send(qp_.get(), &wr, &bad);
  if (error == ENOMEM) return Posted::no_credit;
  if (error != 0) {
    return emu::fail("cannot post frame {}: {}", counts_.frames, std::strerror(error));
  }
  unsignalled_ = signalled ? 0 : unsignalled_ + 1;
  late_ = late_ || launch.launch_ns < now_ns;
  piece_posted(bytes, last);
  return Posted::yes;
}

void Sender::piece_posted(std::uint32_t bytes, bool last) {
  ++pieces_posted_;
  counts_.bytes += bytes;
  packet_ += options_.cut.packets_of_piece(bytes);
  offset_ += bytes;
  if (!last) return;
  if (late_) ++counts_.posted_late;
  late_ = false;
  ++counts_.frames;
  offset_ = 0;
  packet_ = 0;
}

void Sender::complete(const Completion& completion) {
  if (over()) return;  // flushed after a failure that was told already
  if (completion.status != IBV_WC_SUCCESS) {
    fail(ibv_wc_status_str(completion.status));
    return;
  }
  pieces_completed_ += completion.wr_id & (kFrameEnd - 1);
  if ((completion.wr_id & kFrameEnd) != 0) ++counts_.completed;
}

void Sender::stop() {
  if (state_ < SendState::running) {
    state_ = SendState::done;
  } else if (state_ == SendState::running && offset_ == 0) {
    state_ = SendState::draining;
  } else {
    stopping_ = true;  // a frame that has begun is sent to its end
  }
}

void Sender::fail(std::string why) {
  state_ = SendState::failed;
  why_ = std::move(why);
  qp_.reset();  // gives its reservation back
}

}  // namespace tools
