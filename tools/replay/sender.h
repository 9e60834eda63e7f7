// One stream on its way out: an RC queue pair, admission, frames posted ahead with their launch
// times. In come time and completions, out go posts; the replayer drives it.
#pragma once

#include <cstdint>
#include <string>

#include "tools/replay/clip_store.h"
#include "tools/replay/device.h"
#include "tools/replay/plan.h"
#include "tools/replay/rate.h"

namespace tools {

struct SendOptions {
  FrameCut cut;
  std::uint8_t sl = 1;           // of the class real_time
  std::uint32_t slack_us = 500;  // the last packet leaves this long before the deadline
  std::uint32_t ahead_ms = 90;   // how far frames are posted before their time
  bool admission = true;         // ask by ibv_modify_qp_rate_limit
};

enum class SendState : std::uint8_t {
  waiting,  // for its peer
  asking,   // its peer is there; it is not its turn yet to ask for admission
  connected,
  running,
  draining,
  done,
  rejected,
  failed
};

struct SendCounts {
  std::uint64_t frames = 0;           // posted, all pieces
  std::uint64_t bytes = 0;            // of video
  std::uint64_t completed = 0;        // frames acknowledged by the far HCA
  std::uint64_t credit_refusals = 0;  // posts refused with ENOMEM: the piece was tried again later
  // Frames with a piece that was posted after its own launch time: the host or the credits were
  // late.
  std::uint64_t posted_late = 0;
};

class Sender {
 public:
  Sender(const StreamPlan& plan, const StoredClip* clip, const SendOptions& options)
      : plan_(plan), clip_(clip), options_(options) {}

  // Makes the queue pair; then `endpoint` is what the peer has to know.
  emu::Result<void> open(const Device& device, const CompletionQueue& cq, std::uint64_t wr_base);
  Endpoint endpoint() const { return endpoint_; }

  // Connects: `asking`.
  emu::Result<void> connect(const Device& device, const Endpoint& remote);
  // Asks for admission: `connected`. On refusal the state is `rejected` and `rejected_by` says who.
  void ask(const Device& device);
  // The first frame's time is at `start_ns`; `frames` are sent in all.
  void start(emu::EmuNs start_ns, std::uint64_t frames);
  // Posts what is due; returns an error when the queue pair is dead.
  emu::Result<void> tick(const Device& device, emu::EmuNs now_ns);
  void complete(const Completion& completion);
  // No new frames; what is posted still arrives.
  void stop();
  void fail(std::string why);

  const StreamPlan& plan() const { return plan_; }
  const StoredClip& clip() const { return *clip_; }
  SendState state() const { return state_; }
  const SendCounts& counts() const { return counts_; }
  int rejected_by() const { return rejected_by_; }
  bool admitted() const { return admitted_; }
  const std::string& why() const { return why_; }
  std::uint32_t message_bytes_max() const {
    return options_.cut.piece_bytes_max() + static_cast<std::uint32_t>(kFrameHeaderBytes);
  }
  bool over() const { return state_ >= SendState::done; }
  // When the next frame has to be posted; for sleeping where pacing is in software.
  emu::EmuNs next_post_ns(const Device& device) const;

 private:
  static constexpr std::uint32_t kSlots = 64;        // pieces outstanding at most
  static constexpr std::uint32_t kSignalEvery = 16;  // and always at the end of a frame
  static constexpr std::uint64_t kFrameEnd = 0x80;   // of a completion, with the pieces it covers
  static_assert(kSlots % kSignalEvery == 0 && kSignalEvery < kFrameEnd);

  enum class Posted : std::uint8_t { yes, no_credit };
  emu::Result<Posted> post(const Device& device, emu::EmuNs now_ns);
  emu::Result<void> wait_for_credit(emu::EmuNs now_ns);
  void piece_posted(std::uint32_t bytes, bool last);
  std::size_t frame_index() const {
    return (plan_.frame + counts_.frames) % clip_->clip.frames.size();
  }
  std::uint64_t outstanding() const { return pieces_posted_ - pieces_completed_; }
  void prepare(const Device& device, std::span<std::uint8_t> header, std::uint32_t bytes) const;
  emu::EmuNs frame_ns(std::uint64_t number) const { return start_ns_ + plan_.rate.ns_of(number); }

  StreamPlan plan_;
  const StoredClip* clip_;
  SendOptions options_;
  Qp qp_;
  Region headers_;
  Endpoint endpoint_;
  std::uint64_t wr_base_ = 0;
  std::uint32_t offset_ = 0;  // of the next piece in its frame
  std::uint32_t packet_ = 0;  // its first packet's place in the frame
  bool late_ = false;         // a piece of the frame was
  std::uint32_t unsignalled_ = 0;
  std::uint64_t pieces_posted_ = 0;
  std::uint64_t pieces_completed_ = 0;
  emu::EmuNs start_ns_ = 0;
  emu::EmuNs refused_since_ns_ = 0;  // 0: the last post was taken
  std::uint64_t frames_wanted_ = 0;
  SendState state_ = SendState::waiting;
  bool stopping_ = false;
  bool admitted_ = false;
  int rejected_by_ = -1;
  SendCounts counts_;
  std::string why_;
};

}  // namespace tools
