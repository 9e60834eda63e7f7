// fabricd's side of emu/wire/session.
#include <algorithm>
#include <cstring>
#include <string_view>
#include <utility>

#include "emu/base/check.h"
#include "emu/wire/message.h"
#include "emu/wire/session.h"

namespace emu {
namespace {

// Between two calls of service(): longer means that this process was stopped, not its peers.
constexpr std::uint64_t kPauseNs = 100'000'000;

Handshake answer_to(const Handshake& question) {
  Handshake body = question;
  body.server_nonce = {};
  body.session = 0;
  body.previous_delivered = kDeliveredUnknown;
  body.refusal = 0;
  body.terms = {};
  return body;
}

}  // namespace

Acceptor::Acceptor(const AcceptorOptions& options)
    : cluster_key_(options.cluster_key),
      secret_(options.entropy),
      cycle_ps_(options.cycle_ps),
      terms_(write_terms(options.settings)),
      limits_(options.limits),
      timing_(options.timing),
      objection_(options.objection),
      seats_(options.node_names.size()) {
  CHECK(seats_.size() <= static_cast<std::size_t>(kNodesMax));
  const Key drawn = derive(secret_, std::as_bytes(std::span("boot")));
  std::memcpy(&boot_, drawn.data(), sizeof boot_);
  for (std::size_t node = 0; node < seats_.size(); ++node) {
    seats_[node].name = options.node_names[node];
    seats_[node].channel = std::make_unique<Channel>(limits_);
  }
}

NodeId Acceptor::find(const Handshake& body) const {
  const std::string_view name(body.name.data());  // ends with 0: parse_handshake saw to it
  for (std::size_t node = 0; node < seats_.size(); ++node) {
    if (seats_[node].name == name) return static_cast<NodeId>(node);
  }
  return kNoNode;
}

Arrival Acceptor::receive(std::span<const std::byte> datagram, std::uint64_t now_ns) {
  const auto frame = parse_frame(datagram);
  if (!frame) {
    ++strangers_;
    return {};
  }
  switch (frame->header.type) {
    case FrameType::hello:
      return on_hello(*frame);
    case FrameType::confirm:
      return on_confirm(*frame, now_ns);
    case FrameType::data: {
      const auto node = static_cast<NodeId>(frame->header.session & 0xffff);
      if (node < seats_.size() && seats_[node].open &&
          seats_[node].channel->receive(*frame, now_ns)) {
        return {.node = node};
      }
      break;
    }
    case FrameType::welcome:
    case FrameType::refuse:
      break;
  }
  ++strangers_;
  return {};
}

// Busy: another process is this node, and alive.
Refusal Acceptor::objection(NodeId node, const Handshake& body) const {
  const Seat& seat = seats_[node];
  if (seat.open) return seat.instance != body.instance ? Refusal::busy : Refusal::none;
  return objection_ != nullptr ? objection_(node) : Refusal::none;
}

// What a welcome says; drawn from the secret, so that the confirm can be checked without memory.
Handshake Acceptor::offer(NodeId node, const Handshake& hello) const {
  const Seat& seat = seats_[node];
  Handshake body = answer_to(hello);
  struct {
    Nonce client;
    std::uint64_t instance;
    std::uint64_t generation;
    std::uint64_t node;
  } input{hello.client_nonce, hello.instance, seat.generation, node};
  static_assert(std::has_unique_object_representations_v<decltype(input)>);
  const Key drawn = derive(secret_, std::as_bytes(std::span(&input, 1)));
  std::memcpy(body.server_nonce.data(), drawn.data(), sizeof(Nonce));
  std::memcpy(&body.session, drawn.data() + sizeof(Nonce), sizeof body.session);
  body.session = (body.session & ~std::uint64_t{0xffff}) | node;
  const bool known = seat.instance == hello.instance && hello.previous_session != 0 &&
                     seat.channel->session() == hello.previous_session;
  if (known) body.previous_delivered = seat.channel->in().records_delivered();
  body.cycle_ps = cycle_ps_;
  body.boot = boot_;
  body.terms = terms_;
  const bool small = seat.small && seat.instance == hello.instance;
  body.frame_bytes = static_cast<std::uint32_t>(small ? kFrameBytesMin : limits_.frame_bytes);
  body.message_version = kMessageVersion;
  body.seals = best_seal(hello.seals & seals_here());
  return body;
}

// The node was only out of hearing: its session is here and well.
bool Acceptor::goes_on(const Seat& seat, const Handshake& hello) const {
  return seat.open && seat.instance == hello.instance &&
         seat.channel->session() == hello.previous_session && !seat.channel->broken() &&
         !seat.channel->said_bye();
}

Arrival Acceptor::answer(FrameType type, NodeId node, const Handshake& body) {
  const FrameHeader header{.magic = kFrameMagic,
                           .version = kFrameVersion,
                           .type = type,
                           .flags = 0,
                           .session = body.session,
                           .number = 0,
                           .sequence = 0,
                           .ack = 0,
                           .sack = 0,
                           .now_cycle = 0,
                           .window = 0,
                           .node = node,
                           .length = sizeof(Handshake)};
  std::memcpy(out_.data(), &header, sizeof header);
  std::memcpy(out_.data() + sizeof header, &body, sizeof body);
  seal_handshake(out_, cluster_key_);
  return {.reply = out_};
}

Arrival Acceptor::on_hello(const FrameView& frame) {
  const auto hello = parse_handshake(frame);
  if (!hello || !opens_handshake(frame.bytes, cluster_key_)) {
    ++strangers_;
    return {};
  }
  const auto refuse = [&](Refusal why) {
    Handshake body = answer_to(*hello);
    body.refusal = static_cast<std::uint32_t>(why);
    return answer(FrameType::refuse, kNoNode, body);
  };
  if (hello->message_version != kMessageVersion) return refuse(Refusal::version);
  const NodeId node = find(*hello);
  if (node == kNoNode) return refuse(Refusal::unknown_node);
  const Seat& seat = seats_[node];
  if (const Refusal why = objection(node, *hello); why != Refusal::none) return refuse(why);
  if (goes_on(seat, *hello)) {
    seat.channel->acknowledge_now();
    return {};
  }
  return answer(FrameType::welcome, node, offer(node, *hello));
}

Arrival Acceptor::on_confirm(const FrameView& frame, std::uint64_t now_ns) {
  const auto body = parse_handshake(frame);
  const NodeId node = body ? find(*body) : kNoNode;
  if (node == kNoNode || node != frame.header.node) {
    ++strangers_;
    return {};
  }
  Seat& seat = seats_[node];
  if (seat.open && body->session == seat.channel->session()) {
    // Our first frame was lost. It could also be a recording, so the address is not believed.
    if (opens_handshake(frame.bytes, seat.confirm_key)) seat.channel->acknowledge_now();
    return {};
  }
  const Handshake expected = offer(node, *body);
  const bool fits = body->server_nonce == expected.server_nonce && body->seals != 0 &&
                    body->seals == expected.seals && body->session == expected.session &&
                    !goes_on(seat, *body) && body->frame_bytes >= kFrameBytesMin &&
                    body->frame_bytes <= expected.frame_bytes &&
                    objection(node, *body) == Refusal::none;
  if (!fits ||
      !opens_handshake(frame.bytes, session_key(cluster_key_, *body, node, KeyUse::confirm))) {
    ++strangers_;
    return {};
  }
  open(node, *body, now_ns);
  return {.node = node};
}

void Acceptor::open(NodeId node, const Handshake& confirm, std::uint64_t now_ns) {
  Seat& seat = seats_[node];
  const DataKey send = {session_key(cluster_key_, confirm, node, KeyUse::to_node), confirm.seals};
  const DataKey receive = {session_key(cluster_key_, confirm, node, KeyUse::to_fabric),
                           confirm.seals};
  Channel& channel = *seat.channel;
  const SendWindow& out = channel.out();
  seat.epoch = Epoch{.number = seat.epoch.number + 1,
                     .sent_before = out.records_sent(),
                     .taken_at_least = out.records_acknowledged(),
                     .taken_at_most = out.records_sent(),
                     .delivered_before = channel.in().records_delivered()};
  const bool told = confirm.previous_session != 0 && seat.instance == confirm.instance &&
                    confirm.previous_session == channel.session();
  if (told && confirm.previous_delivered <= out.records_sent()) {
    seat.epoch.taken_at_least = seat.epoch.taken_at_most = confirm.previous_delivered;
  }
  channel.open(confirm.session, node, confirm.frame_bytes, send, receive, now_ns);
  seat.open = true;
  seat.reason.clear();
  seat.small = seat.small && seat.instance == confirm.instance;
  seat.instance = confirm.instance;
  seat.confirm_key = session_key(cluster_key_, confirm, node, KeyUse::confirm);
  ++seat.generation;
}

void Acceptor::close(NodeId node, std::string reason) {
  Seat& seat = seats_[node];
  if (!seat.open) return;
  seat.open = false;
  seat.reason = std::move(reason);
}

// As long as silence the other way. A hello alone does not show it: it could be a recording.
bool Acceptor::hears_nothing(const Channel& channel, std::uint64_t now_ns) const {
  const std::uint64_t since = channel.peer_deaf_since_ns();
  return since != 0 && now_ns + timing_.silent_ns >= since + timing_.dead_ns;
}

void Acceptor::service(std::uint64_t now_ns) {
  const std::uint64_t away_ns = serviced_ns_ == 0 ? 0 : now_ns - serviced_ns_;
  serviced_ns_ = now_ns;
  for (std::size_t n = 0; n < seats_.size(); ++n) {
    const Seat& seat = seats_[n];
    if (!seat.open) continue;
    const auto node = static_cast<NodeId>(n);
    if (away_ns > kPauseNs) seat.channel->pardon(away_ns, now_ns);
    if (seat.channel->said_bye()) {
      close(node, "left");
    } else if (seat.channel->broken()) {
      close(node, "sent records that make no sense");
    } else if (seat.channel->out().stuck_bytes() != 0) {
      seats_[n].small = true;
      close(node, seat.channel->stuck());
    } else if (now_ns >= seat.channel->last_heard_ns() + timing_.dead_ns) {
      close(node, fmt::format("silent for {} ms", timing_.dead_ns / 1'000'000));
    } else if (hears_nothing(*seat.channel, now_ns)) {
      close(node, fmt::format("hears nothing of the fabric for {} ms, but is heard: the path to it "
                              "is dead in one direction",
                              timing_.dead_ns / 1'000'000));
    }
  }
}

Train Acceptor::transmit(NodeId node, std::uint64_t now_ns, Cycle now_cycle) {
  Seat& seat = seats_[node];
  return seat.open ? seat.channel->transmit(now_ns, now_cycle) : Train{};
}

std::uint64_t Acceptor::next_transmit_ns() const {
  std::uint64_t next = ~std::uint64_t{0};
  for (const Seat& seat : seats_) {
    if (seat.open) next = std::min(next, seat.channel->next_transmit_ns());
  }
  return next;
}

}  // namespace emu
