// The sending half of a channel. In: records, acknowledgements. Out: frames to put on the wire, new
// ones and those believed lost. Called by emu/wire/channel alone.
//
// Frames lie one behind the other in one buffer, built where they are sent from, so that a train of
// equal segments for UDP_SEGMENT is a piece of that buffer. A slot is free again when the peer has
// acknowledged its frame; when all are taken, nothing more is accepted: that is the back-pressure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "emu/wire/frame.h"
#include "emu/wire/record.h"

namespace emu {

class SendWindow {
 public:
  // `frames` is a power of two.
  SendWindow(std::uint32_t frames, std::size_t frame_bytes_max);

  // Forgets everything; frames of `frame_bytes` from here on.
  void reset(std::size_t frame_bytes);
  // A record is taken whole or not at all.
  std::size_t room() const;
  bool append(RecordKind kind, std::span<const std::byte> head, std::span<const std::byte> body);
  // Ends the frame that is being filled, so that it can go out.
  void flush();

  // The first frame that may go out now, or kNone: one believed lost, else a new one if the
  // congestion window and the peer's window have room.
  static constexpr std::uint64_t kNone = ~std::uint64_t{0};
  std::uint64_t first_sendable() const;
  bool sendable(std::uint64_t sequence) const;
  // Whether frame `sequence` lies right behind its predecessor in the buffer.
  bool adjoins(std::uint64_t sequence) const { return (sequence & mask_) != 0; }
  std::span<std::byte> frame(std::uint64_t sequence);  // header | payload | tag
  void sent(std::uint64_t sequence, std::uint64_t now_ns);

  // False: the peer acknowledges what was never sent.
  bool acknowledge(const FrameHeader& header, std::uint64_t now_ns);
  // When the retransmission timer runs out; kNone with nothing in flight.
  std::uint64_t deadline_ns() const;
  // It has: everything that is not acknowledged is believed lost, until an acknowledgement shows
  // that it was not.
  void time_out();

  // Bytes of a frame that was sent again and again while the peer, which was heard all the time,
  // never acknowledged it: the path takes none so large. 0: there is none.
  std::size_t stuck_bytes() const { return stuck_bytes_; }

  std::uint64_t next() const { return next_; }
  std::uint64_t records_sent() const { return records_sent_; }
  std::uint64_t records_acknowledged() const { return records_acknowledged_; }
  std::uint64_t frames_repeated() const { return frames_repeated_; }
  std::uint64_t rtt_ns() const { return srtt_ns_; }
  std::uint32_t congestion_window() const { return congestion_window_; }
  bool idle() const { return una_ == tail_ && fill_ == 0; }

 private:
  struct Slot {
    std::uint64_t sent_ns;
    std::uint64_t records_end;  // records that are complete at the end of this frame
    std::uint16_t length;       // of the payload
    std::uint8_t transmissions;
    bool arrived;  // selectively acknowledged
    bool lost;
    bool timed_out;  // with `lost`: because of the timer alone
  };

  Slot& slot(std::uint64_t sequence) { return slots_[sequence & mask_]; }
  const Slot& slot(std::uint64_t sequence) const { return slots_[sequence & mask_]; }
  void put(std::span<const std::byte> bytes);
  void begin_frame();
  void leave_flight(Slot& slot);
  bool may_repeat() const;
  void mark_lost(Slot& slot, bool timed_out);
  void measure(std::uint64_t sent_ns, std::uint64_t now_ns);
  void grow(std::uint32_t acknowledged);
  void mark_holes(std::uint64_t highest, std::uint64_t now_ns);
  void look_for_stuck(std::uint64_t now_ns);
  void congestion();
  void undo_time_out();

  std::uint32_t mask_;
  std::size_t frame_bytes_ = 0;
  std::size_t payload_max_ = 0;
  // una_ <= next_ <= tail_ <= una_ + frames; frame tail_ is being filled.
  std::uint64_t una_ = 0;
  std::uint64_t next_ = 0;
  std::uint64_t tail_ = 0;
  std::size_t fill_ = 0;
  std::uint64_t limit_ = 0;      // the peer has no place for this frame yet
  std::uint32_t in_flight_ = 0;  // sent, neither arrived nor believed lost
  std::uint32_t lost_ = 0;
  std::uint32_t congestion_window_ = 0;
  std::uint32_t slow_start_until_ = 0;
  std::uint32_t grown_ = 0;     // acknowledged since the window last grew
  std::uint64_t recovery_ = 0;  // losses below this frame are one event
  // The frames that were under way when the timer ran out, and how wide the window was.
  std::uint64_t timed_out_from_ = 0;
  std::uint64_t timed_out_until_ = 0;
  std::uint32_t window_before_ = 0;
  std::uint32_t slow_start_before_ = 0;
  std::uint64_t srtt_ns_ = 0;
  std::uint64_t rttvar_ns_ = 0;
  std::uint32_t backoff_ = 0;
  // Since then the peer spoke, and not of a frame that was repeated; 0: not.
  std::uint64_t stuck_since_ns_ = 0;
  std::uint64_t stuck_heard_ns_ = 0;  // when it last did
  std::size_t stuck_bytes_ = 0;
  std::uint64_t records_sent_ = 0;
  std::uint64_t records_acknowledged_ = 0;
  std::uint64_t frames_repeated_ = 0;
  std::vector<Slot> slots_;
  std::vector<std::byte> bytes_;
};

}  // namespace emu
