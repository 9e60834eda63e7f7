#include "emu/wire/channel.h"

#include <algorithm>
#include <cstring>

#include <fmt/core.h>

#include "emu/base/check.h"

namespace emu {
namespace {

constexpr std::uint64_t kNoTime = ~std::uint64_t{0};
// Frames that arrive in order are acknowledged in lots, or after this delay.
constexpr std::uint32_t kAcknowledgeFrames = 16;
constexpr std::uint64_t kAcknowledgeDelayNs = 500'000;

}  // namespace

bool ReplayGuard::fresh(std::uint64_t number) const {
  if (number >= next_) return true;
  if (next_ - number > kBits) return false;
  return ((seen_[number % kBits / 64] >> (number % 64)) & 1) == 0;
}

void ReplayGuard::mark(std::uint64_t number) {
  if (number >= next_) {
    if (number - next_ >= kBits) {
      seen_.fill(0);
    } else {
      for (std::uint64_t n = next_; n < number; ++n) {
        seen_[n % kBits / 64] &= ~(std::uint64_t{1} << (n % 64));
      }
    }
    next_ = number + 1;
  }
  seen_[number % kBits / 64] |= std::uint64_t{1} << (number % 64);
}

Channel::Channel(const ChannelLimits& limits)
    : out_(limits.window_frames, limits.frame_bytes),
      in_(limits.window_frames, limits.frame_bytes),
      heartbeat_ns_(limits.heartbeat_ns) {}

void Channel::open(std::uint64_t session, NodeId node, std::size_t frame_bytes,
                   const DataKey& send_key, const DataKey& receive_key, std::uint64_t now_ns) {
  session_ = session;
  node_ = node;
  send_key_ = send_key;
  receive_key_ = receive_key;
  out_.reset(frame_bytes);
  in_.reset();
  guard_.reset();
  number_ = 0;
  last_heard_ns_ = last_sent_ns_ = now_ns;
  unacknowledged_ = 0;
  acknowledge_by_ns_ = kNoTime;
  announced_limit_ = in_.limit();
  acknowledge_now_ = true;  // the first frame shows the peer that the session is open
  said_bye_ = broken_ = deaf_ = false;
  peer_deaf_since_ns_ = 0;
  trains_ = frame_bytes > kFrameBytesMin;
  peer_cycle_ = peer_cycle_ns_ = 0;
}

bool Channel::receive(const FrameView& frame, std::uint64_t now_ns) {
  const FrameHeader& header = frame.header;
  if (header.type != FrameType::data || header.session != session_ || header.node != node_ ||
      !guard_.fresh(header.number) || !receive_key_.opens(frame.bytes, header.number)) {
    ++counters_.frames_refused;
    return false;
  }
  if (guard_.newest(header.number)) {
    const bool deaf = (header.flags & kFlagDeaf) != 0;
    if (!deaf || peer_deaf_since_ns_ == 0) peer_deaf_since_ns_ = deaf ? now_ns : 0;
  }
  guard_.mark(header.number);
  ++counters_.frames_in;
  last_heard_ns_ = now_ns;
  if (header.now_cycle > peer_cycle_) {
    peer_cycle_ = header.now_cycle;
    peer_cycle_ns_ = now_ns;
  }
  if ((header.flags & kFlagBye) != 0) said_bye_ = true;
  if (!out_.acknowledge(header, now_ns)) broken_ = true;
  if (frame.payload.empty()) return true;
  const std::uint64_t expected = in_.ack();
  if (!in_.keep(header.sequence, frame.payload)) {
    ++counters_.frames_duplicate;
    acknowledge_now_ = true;  // ours was lost, or the peer would not repeat
  } else {
    ++unacknowledged_;
    // Out of order, or the end of a hole: the sender is to know at once.
    if (in_.ack() != expected + 1 || unacknowledged_ >= kAcknowledgeFrames) {
      acknowledge_now_ = true;
    }
    acknowledge_by_ns_ = std::min(acknowledge_by_ns_, now_ns + kAcknowledgeDelayNs);
  }
  return true;
}

void Channel::pop() {
  in_.pop();
  // The peer may be waiting for room: tell it when it knows of less than half of what there is.
  if (in_.limit() - announced_limit_ > announced_limit_ - std::min(in_.ack(), announced_limit_)) {
    acknowledge_now_ = true;
  }
}

FrameHeader Channel::header(std::uint64_t sequence, std::size_t length, std::uint16_t flags,
                            Cycle now_cycle) const {
  return FrameHeader{.magic = kFrameMagic,
                     .version = kFrameVersion,
                     .type = FrameType::data,
                     .flags = static_cast<std::uint16_t>(flags | (deaf_ ? kFlagDeaf : 0)),
                     .session = session_,
                     .number = 0,
                     .sequence = sequence,
                     .ack = in_.ack(),
                     .sack = in_.sack(),
                     .now_cycle = now_cycle,
                     .window = in_.window(),
                     .node = node_,
                     .length = static_cast<std::uint16_t>(length)};
}

void Channel::finish(std::span<std::byte> frame, FrameHeader header) {
  header.number = number_++;
  std::memcpy(frame.data(), &header, sizeof header);
  send_key_.seal(frame, header.number);
  ++counters_.frames_out;
}

void Channel::note_sent(std::uint64_t now_ns) {
  last_sent_ns_ = now_ns;
  unacknowledged_ = 0;
  acknowledge_now_ = false;
  acknowledge_by_ns_ = kNoTime;
  announced_limit_ = in_.limit();
}

Train Channel::data_train(std::uint64_t first, std::uint64_t now_ns, Cycle now_cycle) {
  const std::span<std::byte> head = out_.frame(first);
  Train train{{}, head.size()};
  std::size_t bytes = 0;
  FrameHeader stamp = header(first, 0, 0, now_cycle);
  for (std::uint64_t sequence = first;; ++sequence) {
    const std::span<std::byte> frame = out_.frame(sequence);
    stamp.sequence = sequence;
    stamp.length = static_cast<std::uint16_t>(frame.size() - kFrameOverhead);
    finish(frame, stamp);
    out_.sent(sequence, now_ns);
    bytes += frame.size();
    if (!trains_ || frame.size() < train.segment || !out_.sendable(sequence + 1)) break;
    const std::size_t next = out_.frame(sequence + 1).size();
    if (!out_.adjoins(sequence + 1) || next > train.segment || bytes + next > kTrainBytesMax ||
        sequence + 2 - first > kTrainSegmentsMax) {
      break;
    }
    // The next frame adjoins this one only if this one is full.
    if (frame.data() + frame.size() != out_.frame(sequence + 1).data()) break;
  }
  train.bytes = std::span<const std::byte>(head.data(), bytes);
  return train;
}

Train Channel::bare_frame(std::uint16_t flags, Cycle now_cycle) {
  finish(bare_, header(out_.next(), 0, flags, now_cycle));
  return Train{bare_, bare_.size()};
}

Train Channel::transmit(std::uint64_t now_ns, Cycle now_cycle) {
  if (now_ns >= out_.deadline_ns()) out_.time_out();
  out_.flush();
  const std::uint64_t first = out_.first_sendable();
  if (first != SendWindow::kNone) {
    // What is repeated may be what this path never takes: heartbeats and acknowledgements do not
    // rely on it.
    const bool repeated = first < out_.next();
    const Train train = data_train(first, now_ns, now_cycle);
    if (!repeated) note_sent(now_ns);
    return train;
  }
  if (acknowledge_now_ || now_ns >= acknowledge_by_ns_ || now_ns >= last_sent_ns_ + heartbeat_ns_) {
    note_sent(now_ns);
    return bare_frame(0, now_cycle);
  }
  return {};
}

// What lay in the socket meanwhile has been heard just now: nothing was heard in the future.
void Channel::pardon(std::uint64_t away_ns, std::uint64_t now_ns) {
  last_heard_ns_ = std::min(last_heard_ns_ + away_ns, now_ns);
  if (peer_deaf_since_ns_ != 0)
    peer_deaf_since_ns_ = std::min(peer_deaf_since_ns_ + away_ns, now_ns);
}

std::string Channel::stuck() const {
  if (out_.stuck_bytes() == 0) return "";
  return fmt::format(
      "datagrams of {} bytes do not arrive: attach.mtu is above the path's, or offload is on "
      "(ethtool -K IF tx off){}",
      out_.stuck_bytes(), out_.stuck_bytes() > kFrameBytesMin ? "; smaller ones are tried" : "");
}

Train Channel::farewell(Cycle now_cycle) { return bare_frame(kFlagBye, now_cycle); }

std::uint64_t Channel::next_transmit_ns() const {
  if (acknowledge_now_) return 0;
  return std::min({out_.deadline_ns(), acknowledge_by_ns_, last_sent_ns_ + heartbeat_ns_});
}

ChannelCounters Channel::counters() const {
  ChannelCounters counters = counters_;
  counters.frames_repeated = out_.frames_repeated();
  return counters;
}

}  // namespace emu
