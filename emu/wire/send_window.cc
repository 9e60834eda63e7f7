#include "emu/wire/send_window.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "emu/base/check.h"

namespace emu {
namespace {

constexpr std::uint32_t kCongestionStart = 64;  // one train, and some
constexpr std::uint32_t kCongestionMin = 8;
// A hole counts as lost when a frame this far behind it has arrived (RFC 5681's three duplicates).
constexpr std::uint64_t kReorderFrames = 3;
// A polling loop on a shared core is away for up to 5 ms (measured): a timer with less slack above
// the round trip repeats for nothing. A steady path has no variance to take it from.
constexpr std::uint64_t kSlackMinNs = 10'000'000;
constexpr std::uint64_t kTimeoutStartNs = 50'000'000;
// Above three times the longest round trip that a handshake bears: what RFC 6298 makes of the first
// measurement. The least timer reaches it in so many doublings.
constexpr std::uint64_t kTimeoutMaxNs = 2'000'000'000;
constexpr std::uint32_t kBackoffMax = 8;
static_assert(kSlackMinNs << kBackoffMax >= kTimeoutMaxNs);
// A frame that was sent so often without an answer, and then for so long, does not arrive: where
// every other datagram is lost, one frame in a thousand is taken for it.
constexpr std::uint8_t kStuckTransmissions = 3;
constexpr std::uint64_t kStuckNs = 3'000'000'000;
// Heartbeats come more often: a peer that was silent for longer, or we, who did not listen.
constexpr std::uint64_t kStuckSilenceNs = 1'000'000'000;

}  // namespace

SendWindow::SendWindow(std::uint32_t frames, std::size_t frame_bytes_max)
    : mask_(frames - 1), slots_(frames), bytes_(frames * frame_bytes_max) {
  CHECK(std::has_single_bit(frames));
  reset(frame_bytes_max);
}

void SendWindow::reset(std::size_t frame_bytes) {
  CHECK(frame_bytes >= kFrameBytesMin && frame_bytes * slots_.size() <= bytes_.size());
  payload_max_ = (frame_bytes - kFrameOverhead) & ~std::size_t{3};
  frame_bytes_ = payload_max_ + kFrameOverhead;
  una_ = next_ = tail_ = limit_ = recovery_ = 0;
  timed_out_from_ = timed_out_until_ = 0;
  fill_ = 0;
  in_flight_ = lost_ = grown_ = backoff_ = 0;
  congestion_window_ = std::min(kCongestionStart, mask_ + 1);
  slow_start_until_ = mask_ + 1;
  srtt_ns_ = rttvar_ns_ = 0;
  stuck_since_ns_ = stuck_heard_ns_ = stuck_bytes_ = 0;
  records_sent_ = records_acknowledged_ = 0;
  limit_ = congestion_window_;  // until the peer says what it has room for
}

std::size_t SendWindow::room() const {
  const std::size_t frames_free = slots_.size() - (tail_ - una_);
  return frames_free * payload_max_ - fill_;
}

void SendWindow::begin_frame() {
  slot(tail_) = Slot{.sent_ns = 0,
                     .records_end = records_sent_,
                     .length = 0,
                     .transmissions = 0,
                     .arrived = false,
                     .lost = false,
                     .timed_out = false};
}

void SendWindow::put(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    if (fill_ == 0) begin_frame();
    const std::size_t n = std::min(bytes.size(), payload_max_ - fill_);
    std::byte* frame = &bytes_[(tail_ & mask_) * frame_bytes_];
    std::memcpy(frame + sizeof(FrameHeader) + fill_, bytes.data(), n);
    fill_ += n;
    bytes = bytes.subspan(n);
    if (fill_ == payload_max_) flush();
  }
}

void SendWindow::flush() {
  if (fill_ == 0) return;
  slot(tail_).length = static_cast<std::uint16_t>(fill_);
  ++tail_;
  fill_ = 0;
}

bool SendWindow::append(RecordKind kind, std::span<const std::byte> head,
                        std::span<const std::byte> body) {
  const std::size_t length = head.size() + body.size();
  CHECK(length <= kRecordBodyMax);
  if (record_bytes(length) > room()) return false;
  const RecordHeader header{static_cast<std::uint16_t>(length), kind, 0};
  constexpr std::byte kZeros[4] = {};
  put(std::as_bytes(std::span(&header, 1)));
  put(head);
  put(body);
  put(std::span(kZeros).first(padded(length) - length));
  ++records_sent_;
  slot(fill_ == 0 ? tail_ - 1 : tail_).records_end = records_sent_;
  return true;
}

bool SendWindow::sendable(std::uint64_t sequence) const {
  if (sequence < una_) return false;
  if (sequence < next_) return slot(sequence).lost && may_repeat();
  return sequence == next_ && next_ < tail_ && next_ < limit_ && in_flight_ < congestion_window_;
}

// After a timeout repetitions obey the congestion window, too: nothing is known of the path.
bool SendWindow::may_repeat() const {
  return una_ >= timed_out_until_ || in_flight_ < congestion_window_;
}

std::uint64_t SendWindow::first_sendable() const {
  if (lost_ != 0 && may_repeat()) {
    for (std::uint64_t sequence = una_; sequence < next_; ++sequence) {
      if (slot(sequence).lost) return sequence;
    }
  }
  return sendable(next_) ? next_ : kNone;
}

std::span<std::byte> SendWindow::frame(std::uint64_t sequence) {
  return {&bytes_[(sequence & mask_) * frame_bytes_], kFrameOverhead + slot(sequence).length};
}

void SendWindow::sent(std::uint64_t sequence, std::uint64_t now_ns) {
  Slot& s = slot(sequence);
  if (sequence == next_) {
    ++next_;
  } else {
    CHECK(s.lost);
    s.lost = false;
    --lost_;
    ++frames_repeated_;
  }
  ++in_flight_;
  s.sent_ns = now_ns;
  s.transmissions = static_cast<std::uint8_t>(std::min(s.transmissions + 1, 255));
}

void SendWindow::leave_flight(Slot& s) {
  if (s.lost) {
    s.lost = false;
    --lost_;
  } else if (!s.arrived) {
    --in_flight_;
  }
}

void SendWindow::mark_lost(Slot& s, bool timed_out) {
  if (s.arrived || s.lost) return;
  s.lost = true;
  s.timed_out = timed_out;
  ++lost_;
  --in_flight_;
}

void SendWindow::measure(std::uint64_t sent_ns, std::uint64_t now_ns) {
  if (now_ns < sent_ns) return;
  const std::uint64_t rtt = now_ns - sent_ns;
  backoff_ = 0;
  if (srtt_ns_ == 0) {
    srtt_ns_ = std::max<std::uint64_t>(rtt, 1);
    rttvar_ns_ = rtt / 2;
    return;
  }
  const std::uint64_t error = rtt > srtt_ns_ ? rtt - srtt_ns_ : srtt_ns_ - rtt;
  rttvar_ns_ = (3 * rttvar_ns_ + error) / 4;
  srtt_ns_ = std::max<std::uint64_t>((7 * srtt_ns_ + rtt) / 8, 1);
}

bool SendWindow::acknowledge(const FrameHeader& header, std::uint64_t now_ns) {
  if (header.ack > next_) return false;
  limit_ = std::max(limit_, header.ack + header.window);
  // When the last of the frames that this is the first to tell of was sent. Karn: not of those that
  // were repeated, for this may be an answer to either.
  std::uint64_t measured = kNone;
  const auto arrives = [&](Slot& s) {
    if (!s.arrived && s.transmissions == 1) measured = s.sent_ns;
    leave_flight(s);
    s.arrived = true;
  };
  if (header.ack > una_) {
    const Slot& last = slot(header.ack - 1);
    const bool spurious = last.lost && last.timed_out;
    const auto acknowledged = static_cast<std::uint32_t>(header.ack - una_);
    for (; una_ < header.ack; ++una_) arrives(slot(una_));
    records_acknowledged_ = last.records_end;
    stuck_since_ns_ = 0;
    if (spurious) undo_time_out();
    grow(acknowledged);
  } else {
    look_for_stuck(now_ns);
  }
  const bool fresh = header.sack != 0 && header.ack == una_;
  std::uint64_t highest = una_;
  for (std::uint64_t bits = fresh ? header.sack : 0; bits != 0; bits &= bits - 1) {
    highest = header.ack + 1 + static_cast<unsigned>(std::countr_zero(bits));
    if (highest >= next_) return false;
    arrives(slot(highest));
  }
  if (measured != kNone) measure(measured, now_ns);
  if (fresh) mark_holes(highest, now_ns);
  return true;
}

void SendWindow::grow(std::uint32_t acknowledged) {
  if (congestion_window_ < slow_start_until_) {
    congestion_window_ += acknowledged;
  } else if ((grown_ += acknowledged) >= congestion_window_) {
    grown_ = 0;
    ++congestion_window_;
  }
  congestion_window_ = std::min(congestion_window_, mask_ + 1);
}

void SendWindow::look_for_stuck(std::uint64_t now_ns) {
  if (una_ == next_ || slot(una_).transmissions < kStuckTransmissions) return;
  if (stuck_since_ns_ == 0 || now_ns > stuck_heard_ns_ + kStuckSilenceNs) stuck_since_ns_ = now_ns;
  stuck_heard_ns_ = now_ns;
  const std::size_t bytes = frame(una_).size();
  const bool large = bytes > kFrameBytesMin || bytes == frame_bytes_;
  if (large && now_ns > stuck_since_ns_ + kStuckNs) stuck_bytes_ = bytes;
}

// A hole well below what has arrived is lost, unless its repetition may still be on the way.
void SendWindow::mark_holes(std::uint64_t highest, std::uint64_t now_ns) {
  bool found = false;
  for (std::uint64_t sequence = una_; sequence + kReorderFrames <= highest; ++sequence) {
    Slot& s = slot(sequence);
    s.timed_out = false;  // there is a better reason now
    if (s.arrived || s.lost) continue;
    if (s.transmissions > 1 && now_ns < s.sent_ns + srtt_ns_ + srtt_ns_ / 4) continue;
    mark_lost(s, false);
    found = true;
  }
  if (found && una_ >= recovery_) congestion();
}

void SendWindow::congestion() {
  recovery_ = next_;
  congestion_window_ = std::max(congestion_window_ / 2, kCongestionMin);
  slow_start_until_ = congestion_window_;
  grown_ = 0;
}

void SendWindow::time_out() {
  const bool again = una_ < timed_out_until_ && una_ == timed_out_from_;
  if (!again) {
    window_before_ = congestion_window_;
    slow_start_before_ = slow_start_until_;
  }
  timed_out_from_ = una_;
  timed_out_until_ = next_;
  for (std::uint64_t sequence = una_; sequence < next_; ++sequence) mark_lost(slot(sequence), true);
  // Slow start is to lead back to half of what there was, however often the timer runs out.
  if (!again) congestion();
  congestion_window_ = kCongestionMin;
  backoff_ = std::min(backoff_ + 1, kBackoffMax);
}

// The peer has what was only believed lost and not sent since: the timer ran out too early (RFC
// 5682). What else it said to be lost is on the way, and the window was cut for nothing.
void SendWindow::undo_time_out() {
  for (std::uint64_t sequence = una_; sequence < next_; ++sequence) {
    Slot& s = slot(sequence);
    if (!s.lost || !s.timed_out) continue;
    s.lost = false;
    --lost_;
    ++in_flight_;
  }
  congestion_window_ = std::max(congestion_window_, window_before_);
  slow_start_until_ = slow_start_before_;
  recovery_ = timed_out_until_ = una_;
}

std::uint64_t SendWindow::deadline_ns() const {
  if (in_flight_ == 0) return kNone;
  std::uint64_t oldest = kNone;
  for (std::uint64_t sequence = una_; sequence < next_; ++sequence) {
    const Slot& s = slot(sequence);
    if (s.arrived || s.lost) continue;
    oldest = s.sent_ns;
    break;
  }
  CHECK(oldest != kNone);
  const std::uint64_t timeout =
      srtt_ns_ == 0 ? kTimeoutStartNs
                    : std::min(srtt_ns_ + std::max(4 * rttvar_ns_, kSlackMinNs), kTimeoutMaxNs);
  return oldest + std::min(timeout << backoff_, kTimeoutMaxNs);
}

}  // namespace emu
