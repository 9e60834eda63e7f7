// How a session is opened, lost and taken up again. hcad is the initiator, fabricd the acceptor of
// all its nodes; an open session is a Channel. In: host time, datagrams. Out: datagrams, and for
// each node whether it is attached and in which epoch. No I/O, no clock of its own: hca/attach/udp
// and fabric/port/{udp,ethdev} give both.
//
//   hcad                                   fabricd
//   hello  (who, which session I have) ->          checks the tag, keeps nothing
//          <-  welcome (session, server nonce)     or refuse (why)
//   confirm (proof of the session key) ->          the session is open
//          <-> data
//
// fabricd keeps no state for a hello and draws its nonce anew for every session, so a recorded
// handshake, sent again, opens and closes nothing. A session outlives a change of address.
//
// After a silence hcad says hello again, with the session it has. If fabricd has it too, it goes on
// where it stopped and nothing was lost; if not (a restart, too long a silence) a new one begins:
// an epoch, of which both sides learn how many records of the last one the other had taken, if it
// still knows. Meanwhile its frames say that it hears nothing; a node that goes on saying so is
// closed like one that is silent, for its path is dead in one direction.
//
// Where frames of the agreed size do not arrive while shorter ones do (a path of a smaller MTU),
// the side that sees it closes the session with that as the reason, and the next one has the
// smallest.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "emu/wire/channel.h"

namespace emu {

struct SessionTiming {
  std::uint64_t retry_ns = 100'000'000;   // hello and confirm are repeated so often
  std::uint64_t silent_ns = 250'000'000;  // hcad then says hello again; below dead_ns
  // fabricd then closes the session and releases what the node had booked: below one second.
  std::uint64_t dead_ns = 700'000'000;
};

// The end of an epoch, as the beginning of the next one tells it.
struct Epoch {
  std::uint64_t number = 0;  // 1, 2, … : fresh sessions; 0: never attached
  // Of the epoch before: what this side sent, the least and the most of it that the peer took.
  // Equal unless the peer has forgotten (it was restarted). The others are lost.
  std::uint64_t sent_before = 0;
  std::uint64_t taken_at_least = 0;
  std::uint64_t taken_at_most = 0;
  std::uint64_t delivered_before = 0;  // what this side took
};

struct InitiatorOptions {
  Key cluster_key{};
  std::string node_name;
  Key entropy{};  // random_key(), or the test's seed
  ChannelLimits limits{};
  SessionTiming timing{};
  std::optional<Terms> terms{};  // of our cluster.toml: no session is opened on others; none: any
};

class Initiator {
 public:
  explicit Initiator(const InitiatorOptions& options);

  void receive(std::span<const std::byte> datagram, std::uint64_t now_ns);
  // Handshakes, data, heartbeats: call it until it is empty.
  Train transmit(std::uint64_t now_ns);
  std::uint64_t next_transmit_ns() const;
  // True while records flow, or would after a short silence.
  bool attached(std::uint64_t now_ns) const;
  Train farewell() { return channel_.farewell(0); }

  bool send(RecordKind kind, std::span<const std::byte> head, std::span<const std::byte> body) {
    return channel_.send(kind, head, body);
  }
  // Nothing is taken from an epoch whose end has been told to the fabric: the count stays exact.
  std::optional<Record> front() {
    return leaving_epoch() || channel_.broken() ? std::nullopt : channel_.front();
  }
  void pop() { channel_.pop(); }
  // The record in front has no meaning: it is not taken, and a new session begins.
  void break_off() { channel_.break_off(); }
  bool is_open() const { return state_ == State::open; }
  Channel& channel() { return channel_; }
  const Channel& channel() const { return channel_; }
  const Epoch& epoch() const { return epoch_; }
  NodeId node() const { return node_; }
  std::uint64_t cycle_ps() const { return cycle_ps_; }
  Refusal refusal() const { return refusal_; }
  // The fabric would let us in, but not on our terms.
  const std::optional<Disagreement>& other_terms() const { return other_terms_; }

 private:
  enum class State : std::uint8_t { asking, proving, open };

  bool over() const {
    return channel_.broken() || channel_.said_bye() || channel_.out().stuck_bytes() != 0;
  }
  bool leaving_epoch() const { return state_ == State::proving; }
  void ask();
  void on_welcome(const FrameView& frame, std::uint64_t now_ns);
  void on_pending_data(const FrameView& frame, std::uint64_t now_ns);
  void begin_epoch(std::uint64_t now_ns);
  Train handshake_train();

  Key cluster_key_;
  Key entropy_;
  ChannelLimits limits_;
  SessionTiming timing_;
  std::optional<Terms> terms_;
  Channel channel_;
  State state_ = State::asking;
  bool have_epoch_ = false;  // channel_ holds one that may go on, or be told of
  NodeId node_ = 0;
  Handshake handshake_{};  // ours, as it was last sent; after welcome: what both agreed
  DataKey send_key_;       // of the session being proved
  DataKey receive_key_;
  std::uint64_t drawn_ = 0;  // nonces so far
  std::uint64_t next_attempt_ns_ = 0;
  int attempts_ = 0;
  std::uint64_t cycle_ps_ = 0;
  Refusal refusal_ = Refusal::none;
  std::optional<Disagreement> other_terms_;
  std::uint64_t epoch_peer_delivered_ = kDeliveredUnknown;  // of the epoch that is being left
  Epoch epoch_;
  std::array<std::byte, kHandshakeBytes> out_{};
};

struct AcceptorOptions {
  Key cluster_key{};
  std::vector<std::string> node_names;  // by NodeId
  Key entropy{};
  std::uint64_t cycle_ps = 0;
  std::vector<Setting> settings{};  // of the fabric's cluster.toml, for nodes that compare
  ChannelLimits limits{.heartbeat_ns = 1'000'000};  // its frames carry the time
  SessionTiming timing{};
  Objection objection;  // attached in another way, link out of service; null: never
};

// What a datagram was. `reply` goes back to where it came from; when `node` is set, that is where
// the node lives from now on.
inline constexpr NodeId kNoNode = 0xffff;
struct Arrival {
  NodeId node = kNoNode;
  std::span<const std::byte> reply{};
};

class Acceptor {
 public:
  explicit Acceptor(const AcceptorOptions& options);

  Arrival receive(std::span<const std::byte> datagram, std::uint64_t now_ns);
  // Closes sessions whose peer is silent, hears nothing, has said bye, or makes no sense.
  void service(std::uint64_t now_ns);
  Train transmit(NodeId node, std::uint64_t now_ns, Cycle now_cycle);
  std::uint64_t next_transmit_ns() const;
  void close(NodeId node, std::string reason);

  bool attached(NodeId node) const { return seats_[node].open; }
  const Epoch& epoch(NodeId node) const { return seats_[node].epoch; }
  const std::string& reason(NodeId node) const { return seats_[node].reason; }
  Channel& channel(NodeId node) { return *seats_[node].channel; }
  std::size_t node_count() const { return seats_.size(); }
  // Datagrams that were no frame of any session here.
  std::uint64_t strangers() const { return strangers_; }

 private:
  struct Seat {
    bool open = false;
    std::uint64_t generation = 0;  // handshakes that came to an end: no nonce is drawn twice
    std::uint64_t instance = 0;    // of the hcad that has or had the seat
    Key confirm_key{};             // of the open session: a repeated confirm is answered
    std::unique_ptr<Channel> channel;
    Epoch epoch;
    std::string reason;  // why it was closed
    bool small = false;  // it was because large frames do not reach this instance
    std::string name;
  };

  NodeId find(const Handshake& body) const;
  Refusal objection(NodeId node, const Handshake& body) const;
  Arrival on_hello(const FrameView& frame);
  Arrival on_confirm(const FrameView& frame, std::uint64_t now_ns);
  Handshake offer(NodeId node, const Handshake& hello) const;
  bool goes_on(const Seat& seat, const Handshake& hello) const;
  bool hears_nothing(const Channel& channel, std::uint64_t now_ns) const;
  void open(NodeId node, const Handshake& confirm, std::uint64_t now_ns);
  Arrival answer(FrameType type, NodeId node, const Handshake& body);

  Key cluster_key_;
  Key secret_;
  std::uint64_t cycle_ps_;
  TermsText terms_;
  std::uint64_t boot_;
  ChannelLimits limits_;
  SessionTiming timing_;
  Objection objection_;
  std::uint64_t strangers_ = 0;
  std::uint64_t serviced_ns_ = 0;
  std::vector<Seat> seats_;
  std::array<std::byte, kHandshakeBytes> out_{};
};

}  // namespace emu
