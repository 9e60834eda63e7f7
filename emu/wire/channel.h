// An open session seen from one end: records go in and come out, datagrams come in and go out.
// Both ends of an attachment are a Channel; emu/wire/session opens it. In: host time, datagrams,
// records. Out: trains of datagrams, records in order, once each. No I/O, no clock of its own.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "emu/wire/frame.h"
#include "emu/wire/key.h"
#include "emu/wire/receive_window.h"
#include "emu/wire/send_window.h"

namespace emu {

struct ChannelLimits {
  // Each way, a power of two: all the memory there is. With everybody on two cores an
  // acknowledgement takes some milliseconds: so many frames of 1472 bytes are then 2 Gb/s.
  std::uint32_t window_frames = 1024;
  std::size_t frame_bytes = kFrameBytesDefault;
  // Something is sent at least so often. The fabric's is short because its frames carry the time.
  std::uint64_t heartbeat_ns = 50'000'000;
};

// Datagrams of `segment` bytes each, one behind the other, only the last may be shorter: what one
// sendmsg with UDP_SEGMENT takes. Valid until the next call of the channel.
struct Train {
  std::span<const std::byte> bytes;
  std::size_t segment = 0;
  bool empty() const { return bytes.empty(); }
};
// Linux refuses more segments, or more bytes, in one UDP_SEGMENT call.
inline constexpr std::size_t kTrainSegmentsMax = 64;
inline constexpr std::size_t kTrainBytesMax = 65'507;

// Transmission numbers that were seen, so that no datagram counts twice (RFC 6479).
class ReplayGuard {
 public:
  void reset() { *this = {}; }
  bool fresh(std::uint64_t number) const;
  bool newest(std::uint64_t number) const { return number >= next_; }
  void mark(std::uint64_t number);

 private:
  static constexpr std::uint64_t kBits = 1024;  // reordering beyond this is treated as replay
  std::uint64_t next_ = 0;                      // one above the highest
  std::array<std::uint64_t, kBits / 64> seen_{};
};

struct ChannelCounters {
  std::uint64_t frames_in = 0;  // authentic and not seen before
  std::uint64_t frames_out = 0;
  std::uint64_t frames_repeated = 0;   // sent again because they were believed lost
  std::uint64_t frames_duplicate = 0;  // authentic, their payload was there already
  std::uint64_t frames_refused = 0;    // replayed, or not authentic
};

class Channel {
 public:
  explicit Channel(const ChannelLimits& limits);

  // A fresh epoch: both streams begin at 0. The smallest frames go one by one: they are for paths
  // that take no larger ones, and often no trains.
  void open(std::uint64_t session, NodeId node, std::size_t frame_bytes, const DataKey& send_key,
            const DataKey& receive_key, std::uint64_t now_ns);
  // Records out: whole or not at all; false means no room now. They leave with transmit().
  bool send(RecordKind kind, std::span<const std::byte> head, std::span<const std::byte> body) {
    return out_.append(kind, head, body);
  }
  bool has_room(std::size_t body_bytes) const { return record_bytes(body_bytes) <= out_.room(); }
  // Records in: see ReceiveWindow. A record that is not popped closes the window to the sender.
  std::optional<Record> front() { return in_.front(); }
  void pop();

  // Whether the datagram was authentic, of this session and new. Anything else changes nothing
  // but a counter.
  bool receive(const FrameView& frame, std::uint64_t now_ns);
  // What to send now; empty: nothing. Call it until it is empty.
  Train transmit(std::uint64_t now_ns, Cycle now_cycle);
  // Host time at which transmit() will have something by itself.
  std::uint64_t next_transmit_ns() const;
  // One datagram that tells the peer that this end closes.
  Train farewell(Cycle now_cycle);

  // Whether frames tell the peer that it is not heard.
  void say_deaf(bool deaf) { deaf_ = deaf; }
  // Host time since when the peer says so; 0: it hears us.
  std::uint64_t peer_deaf_since_ns() const { return peer_deaf_since_ns_; }
  void acknowledge_now() { acknowledge_now_ = true; }
  // This process was away for so long: the silence meanwhile, ours and the peer's, does not count.
  void pardon(std::uint64_t away_ns, std::uint64_t now_ns);
  bool said_bye() const { return said_bye_; }
  // The peer is authentic, but what it sends has no meaning. Whoever reads the records may say so.
  void break_off() { broken_ = true; }
  bool broken() const { return broken_ || in_.broken(); }
  // Why what is sent does not arrive although the peer is heard; empty: it does.
  std::string stuck() const;
  std::uint64_t session() const { return session_; }
  std::uint64_t last_heard_ns() const { return last_heard_ns_; }
  Cycle peer_cycle() const { return peer_cycle_; }
  std::uint64_t peer_cycle_ns() const { return peer_cycle_ns_; }  // host time it was heard at
  const SendWindow& out() const { return out_; }
  const ReceiveWindow& in() const { return in_; }
  ChannelCounters counters() const;

 private:
  FrameHeader header(std::uint64_t sequence, std::size_t length, std::uint16_t flags,
                     Cycle now_cycle) const;
  void finish(std::span<std::byte> frame, FrameHeader header);
  Train data_train(std::uint64_t first, std::uint64_t now_ns, Cycle now_cycle);
  Train bare_frame(std::uint16_t flags, Cycle now_cycle);
  void note_sent(std::uint64_t now_ns);

  SendWindow out_;
  ReceiveWindow in_;
  ReplayGuard guard_;
  std::uint64_t session_ = 0;
  std::uint64_t number_ = 0;  // of the next transmission
  NodeId node_ = 0;
  DataKey send_key_;
  DataKey receive_key_;
  std::uint64_t heartbeat_ns_;
  std::uint64_t last_sent_ns_ = 0;
  std::uint64_t last_heard_ns_ = 0;
  std::uint64_t acknowledge_by_ns_ = ~std::uint64_t{0};
  std::uint32_t unacknowledged_ = 0;  // frames that arrived since an acknowledgement went out
  std::uint64_t announced_limit_ = 0;
  bool acknowledge_now_ = false;
  bool deaf_ = false;
  std::uint64_t peer_deaf_since_ns_ = 0;
  bool said_bye_ = false;
  bool broken_ = false;
  bool trains_ = true;
  Cycle peer_cycle_ = 0;
  std::uint64_t peer_cycle_ns_ = 0;
  ChannelCounters counters_;
  std::array<std::byte, kFrameOverhead> bare_{};  // acknowledgements, heartbeats, farewell
};

}  // namespace emu
