// hcad's side of emu/wire/session.
#include <algorithm>
#include <cstring>

#include "emu/base/bytes.h"
#include "emu/base/check.h"
#include "emu/wire/message.h"
#include "emu/wire/session.h"

namespace emu {
namespace {

constexpr int kConfirmsMax = 5;  // then the fabric has forgotten its welcome: ask again
constexpr int kHellosMax = 5;    // without an answer: what the last one said may no longer be so

}  // namespace

Initiator::Initiator(const InitiatorOptions& options)
    : cluster_key_(options.cluster_key),
      entropy_(options.entropy),
      limits_(options.limits),
      timing_(options.timing),
      terms_(options.terms),
      channel_(options.limits) {
  CHECK(options.node_name.size() < handshake_.name.size());  // as the configuration has it
  std::memcpy(handshake_.name.data(), options.node_name.data(), options.node_name.size());
  const Key drawn = derive(entropy_, bytes_of(drawn_));
  std::memcpy(&handshake_.instance, drawn.data(), sizeof handshake_.instance);
  ask();
}

// Begins a handshake with a fresh nonce.
void Initiator::ask() {
  state_ = State::asking;
  ++drawn_;
  const Key drawn = derive(entropy_, bytes_of(drawn_));
  std::memcpy(handshake_.client_nonce.data(), drawn.data(), sizeof(Nonce));
  handshake_.server_nonce = {};
  handshake_.session = 0;
  // One that is broken the fabric would go on with: it is not named.
  handshake_.previous_session = have_epoch_ && !channel_.broken() ? channel_.session() : 0;
  handshake_.previous_delivered =
      have_epoch_ ? channel_.in().records_delivered() : kDeliveredUnknown;
  handshake_.cycle_ps = 0;
  handshake_.boot = 0;
  handshake_.frame_bytes = static_cast<std::uint32_t>(limits_.frame_bytes);
  handshake_.message_version = kMessageVersion;
  handshake_.seals = seals_here();
  handshake_.refusal = 0;
  handshake_.terms = {};
  next_attempt_ns_ = 0;
  attempts_ = 0;
}

bool Initiator::attached(std::uint64_t now_ns) const {
  if (epoch_.number == 0 || over()) return false;
  return state_ == State::open || now_ns < channel_.last_heard_ns() + timing_.dead_ns;
}

void Initiator::receive(std::span<const std::byte> datagram, std::uint64_t now_ns) {
  const auto frame = parse_frame(datagram);
  if (!frame) return;
  switch (frame->header.type) {
    case FrameType::welcome:
    case FrameType::refuse:
      if (state_ == State::asking && opens_handshake(datagram, cluster_key_)) {
        on_welcome(*frame, now_ns);
      }
      return;
    case FrameType::data:
      if (state_ == State::proving) {
        on_pending_data(*frame, now_ns);
      } else if (have_epoch_ && !over() && channel_.receive(*frame, now_ns)) {
        state_ = State::open;  // if it was silence, it is over
      }
      return;
    case FrameType::hello:
    case FrameType::confirm:
      return;
  }
}

void Initiator::on_welcome(const FrameView& frame, std::uint64_t now_ns) {
  const auto body = parse_handshake(frame);
  if (!body || body->client_nonce != handshake_.client_nonce ||
      body->instance != handshake_.instance) {
    return;
  }
  if (frame.header.type == FrameType::refuse) {
    refusal_ = static_cast<Refusal>(body->refusal);
    other_terms_.reset();
    attempts_ = 0;
    return;  // asked again at the next attempt: busy passes, and a configuration can change
  }
  if (frame.header.node >= kNodesMax || body->frame_bytes < kFrameBytesMin ||
      body->frame_bytes > kFrameBytesMax || (body->seals & seals_here()) == 0 ||
      best_seal(body->seals) != body->seals) {
    return;
  }
  refusal_ = Refusal::none;
  const NodeId node = frame.header.node;
  other_terms_ = terms_ ? disagreement(*terms_, handshake_.name.data(), node, body->terms)
                        : std::optional<Disagreement>();
  if (other_terms_) {
    attempts_ = 0;
    return;  // asked again, too: either side may get another configuration
  }
  node_ = node;
  const std::uint64_t delivered_by_us =
      have_epoch_ ? channel_.in().records_delivered() : kDeliveredUnknown;
  const auto ours = static_cast<std::uint32_t>(limits_.frame_bytes);
  handshake_ = *body;
  handshake_.frame_bytes = std::min(body->frame_bytes, ours);
  // Kept for the report: what the fabric took. The confirm carries what we took.
  epoch_peer_delivered_ = body->previous_delivered;
  handshake_.previous_delivered = delivered_by_us;
  send_key_ = {session_key(cluster_key_, handshake_, node_, KeyUse::to_fabric), handshake_.seals};
  receive_key_ = {session_key(cluster_key_, handshake_, node_, KeyUse::to_node), handshake_.seals};
  state_ = State::proving;
  attempts_ = 0;
  next_attempt_ns_ = now_ns;
}

// The first frame under the new keys shows that the fabric has opened the session.
void Initiator::on_pending_data(const FrameView& frame, std::uint64_t now_ns) {
  const FrameHeader& header = frame.header;
  if (header.session != handshake_.session || header.node != node_ ||
      !receive_key_.opens(frame.bytes, header.number)) {
    return;
  }
  begin_epoch(now_ns);
  cycle_ps_ = handshake_.cycle_ps;
  state_ = State::open;
  CHECK(channel_.receive(frame, now_ns));
}

void Initiator::begin_epoch(std::uint64_t now_ns) {
  const SendWindow& out = channel_.out();
  epoch_ = Epoch{.number = epoch_.number + 1,
                 .sent_before = out.records_sent(),
                 .taken_at_least = out.records_acknowledged(),
                 .taken_at_most = out.records_sent(),
                 .delivered_before = channel_.in().records_delivered()};
  if (have_epoch_ && epoch_peer_delivered_ <= out.records_sent()) {
    epoch_.taken_at_least = epoch_.taken_at_most = epoch_peer_delivered_;
  }
  channel_.open(handshake_.session, node_, handshake_.frame_bytes, send_key_, receive_key_, now_ns);
  have_epoch_ = true;
}

Train Initiator::handshake_train() {
  const bool proof = state_ == State::proving;
  const FrameHeader header{.magic = kFrameMagic,
                           .version = kFrameVersion,
                           .type = proof ? FrameType::confirm : FrameType::hello,
                           .flags = 0,
                           .session = handshake_.session,
                           .number = static_cast<std::uint64_t>(attempts_),
                           .sequence = 0,
                           .ack = 0,
                           .sack = 0,
                           .now_cycle = 0,
                           .window = 0,
                           .node = proof ? node_ : kNoNode,
                           .length = sizeof(Handshake)};
  std::memcpy(out_.data(), &header, sizeof header);
  std::memcpy(out_.data() + sizeof header, &handshake_, sizeof handshake_);
  seal_handshake(
      out_, proof ? session_key(cluster_key_, handshake_, node_, KeyUse::confirm) : cluster_key_);
  return Train{out_, out_.size()};
}

Train Initiator::transmit(std::uint64_t now_ns) {
  if (state_ == State::open && channel_.out().stuck_bytes() != 0) {
    limits_.frame_bytes = kFrameBytesMin;  // as long as this process lives
    ask();
    return channel_.farewell(0);  // so that the fabric does not go on with it
  }
  const bool silent = now_ns >= channel_.last_heard_ns() + timing_.silent_ns;
  if (state_ == State::open && (over() || silent)) {
    ask();
  }
  if (state_ != State::open && now_ns >= next_attempt_ns_) {
    if (state_ == State::proving && attempts_ >= kConfirmsMax) ask();
    if (attempts_ >= kHellosMax) {
      refusal_ = Refusal::none;
      other_terms_.reset();
    }
    ++attempts_;
    next_attempt_ns_ = now_ns + timing_.retry_ns;
    return handshake_train();
  }
  // The old session is kept up until the fabric says that it has forgotten it.
  const bool kept = state_ == State::open || (state_ == State::asking && have_epoch_ && !over());
  if (!kept) return {};
  channel_.say_deaf(silent);
  return channel_.transmit(now_ns, 0);
}

std::uint64_t Initiator::next_transmit_ns() const {
  if (state_ == State::proving || !have_epoch_) return next_attempt_ns_;
  const std::uint64_t handshake =
      state_ == State::asking ? next_attempt_ns_ : channel_.last_heard_ns() + timing_.silent_ns;
  return std::min(channel_.next_transmit_ns(), handshake);
}

}  // namespace emu
