// One stream on its way in: receive buffers on an RC queue pair, the deadline of every frame, every
// byte compared with the clip. In come completions, out go counts; the replayer drives it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "tools/replay/clip_store.h"
#include "tools/replay/deadline.h"
#include "tools/replay/device.h"
#include "tools/replay/frame_header.h"
#include "tools/replay/plan.h"

namespace tools {

enum class SinkState : std::uint8_t {
  expected,  // the sender has not called yet
  open,      // frames may come
  ending,    // the sender has said how many there are
  done,
  rejected,  // the fabric refused the stream
  gone,      // the sender died
  absent,    // the sender never came
  failed,
};

struct SinkCounts {
  std::uint64_t frames = 0;
  std::uint64_t bytes = 0;
  std::uint64_t bytes_corrupt = 0;
  std::uint64_t headers_corrupt = 0;
  std::uint64_t lost = 0;
  std::uint64_t duplicated = 0;
};

class Sink {
 public:
  // Without a clip frames are compared with the checksum that they carry.
  Sink(StreamPlan plan, const StoredClip* clip) : plan_(std::move(plan)), clip_(clip) {}

  // A queue pair connected to the sender, with buffers for messages of up to that size.
  emu::Result<void> open(const Device& device, const CompletionQueue& cq, std::uint64_t wr_base,
                         const Endpoint& remote, std::uint8_t sl, std::uint32_t message_bytes_max);
  Endpoint endpoint() const { return endpoint_; }
  void complete(const Device& device, const Completion& completion);

  void end(std::uint64_t frames_sent);  // the sender's last word
  void set_rejected(int router, std::string why);
  void set_state(SinkState state, std::string why = "");
  // Done when all that was sent is here; what is missing at the end counts as lost.
  bool settle();
  void give_up();

  const StreamPlan& plan() const { return plan_; }
  SinkState state() const { return state_; }
  bool over() const { return state_ >= SinkState::done; }
  const SinkCounts& counts() const { return counts_; }
  const DeadlineMeter& meter() const { return meter_; }
  std::optional<std::uint64_t> frames_sent() const { return frames_sent_; }
  int rejected_by() const { return rejected_by_; }
  const std::string& why() const { return why_; }

 private:
  // Pieces that may wait for us: of 32 packets and 20 Mb/s some 500 ms.
  static constexpr std::uint32_t kBuffers = 64;

  // The frame that is being put together.
  struct Assembly {
    bool open = false;
    std::uint64_t number = 0;
    std::uint32_t have = 0;  // bytes
    std::uint32_t crc = 0;
  };

  emu::Result<void> post(std::uint32_t buffer);
  void take(const Device& device, std::span<const std::uint8_t> message, emu::EmuNs arrival_ns);
  void begin(const Device& device, const FrameHeader& header);
  bool continues(const FrameHeader& header);
  void finish_frame(const FrameHeader& header, emu::EmuNs arrival_ns);
  std::uint64_t corrupt_bytes(const FrameHeader& header, std::span<const std::uint8_t> piece) const;

  StreamPlan plan_;
  const StoredClip* clip_;
  Region buffers_;
  Qp qp_;  // after the buffers: it goes first
  std::size_t buffer_bytes_ = 0;
  std::uint64_t wr_base_ = 0;
  Endpoint endpoint_;
  SinkState state_ = SinkState::expected;
  SinkCounts counts_;
  DeadlineMeter meter_;
  bool meter_set_ = false;
  Assembly assembly_;
  std::optional<std::uint64_t> frames_sent_;
  int rejected_by_ = -1;
  std::string why_;
};

}  // namespace tools
