// Whatever arrives at the UDP port: at fabricd and at hcad, from strangers (raw bytes) and from a
// peer that has the cluster's key and lies (any header and payload, correctly sealed). The input is
// a program of small steps. Besides what the sanitizers see: no answer is larger than its question,
// windows stay bounded, and strangers change nothing.
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "emu/base/check.h"
#include "emu/wire/session.h"
#include "fabric/port/ethernet.h"

namespace {

using emu::FrameHeader;
using emu::FrameType;
using emu::Handshake;

class Input {
 public:
  Input(const std::uint8_t* data, std::size_t size) : data_(data), size_(size) {}
  bool empty() const { return size_ == 0; }
  template <class T>
  T take() {
    T value{};
    const std::size_t n = std::min(sizeof value, size_);
    std::memcpy(&value, data_, n);
    drop(n);
    return value;
  }
  std::vector<std::byte> bytes(std::size_t wanted) {
    const std::size_t n = std::min(wanted, size_);
    std::vector<std::byte> out(n);
    if (n != 0) std::memcpy(out.data(), data_, n);
    drop(n);
    return out;
  }

 private:
  void drop(std::size_t n) {
    data_ += n;
    size_ -= n;
  }
  const std::uint8_t* data_;
  std::size_t size_;
};

constexpr emu::ChannelLimits kLimits{
    .window_frames = 64, .frame_bytes = emu::kFrameBytesMin, .heartbeat_ns = 1'000'000};

class Harness {
 public:
  Harness()
      : fabric_({.cluster_key = key_,
                 .node_names = {"n0", "n1"},
                 .entropy = {1},
                 .cycle_ps = 320'000,
                 .limits = kLimits,
                 .timing = {},
                 .objection = {}}),
        node_({.cluster_key = key_,
               .node_name = "n0",
               .entropy = {2},
               .limits = kLimits,
               .timing = {}}) {}

  // Honest exchange of whatever both sides want to say.
  void exchange() {
    now_ns_ += 200'000;
    for (int i = 0; i < 8; ++i) {
      const emu::Train up = node_.transmit(now_ns_);
      const emu::Train down = fabric_.transmit(0, now_ns_, now_ns_ / 320);
      if (up.empty() && down.empty()) break;
      each(up, [&](std::span<const std::byte> d) { to_fabric(d); });
      each(down, [&](std::span<const std::byte> d) { node_.receive(d, now_ns_); });
    }
  }
  void open() {
    for (int i = 0; i < 4 && !node_.is_open(); ++i) exchange();
    CHECK(node_.is_open() && fabric_.attached(0));
  }

  void step(Input& input) {
    switch (input.take<std::uint8_t>() % 12) {
      case 0:
        return raw_to_fabric(input);
      case 1:
        return raw_to_node(input);
      case 2:
        return forge_data(input, true);
      case 3:
        return forge_data(input, false);
      case 4:
        return forge_handshake(input, true);
      case 5:
        return forge_handshake(input, false);
      case 6:
        return exchange();
      case 7:
        return void(now_ns_ += std::uint64_t{input.take<std::uint16_t>()} * 100'000);
      case 8:
        return write(input);
      case 9:
        return read();
      case 10:
        return fabric_.service(now_ns_);
      case 11:
        return ethernet(input);
    }
  }

 private:
  template <class F>
  void each(const emu::Train& train, F&& f) {
    CHECK(train.bytes.size() <= emu::kTrainBytesMax);
    for (std::size_t at = 0; at < train.bytes.size(); at += train.segment) {
      f(train.bytes.subspan(at, std::min(train.segment, train.bytes.size() - at)));
    }
  }
  void to_fabric(std::span<const std::byte> datagram) {
    note_keys(datagram);
    const emu::Arrival arrival = fabric_.receive(datagram, now_ns_);
    CHECK(arrival.reply.size() <= datagram.size());
    if (arrival.reply.empty()) return;
    const std::vector<std::byte> reply(arrival.reply.begin(), arrival.reply.end());
    node_.receive(reply, now_ns_);
  }
  // A confirm holds everything that the keys are made of.
  void note_keys(std::span<const std::byte> datagram) {
    const auto frame = emu::parse_frame(datagram);
    if (!frame || frame->header.type != FrameType::confirm) return;
    const auto body = emu::parse_handshake(*frame);
    const bool honest =
        body && body->seals != 0 && emu::best_seal(body->seals & emu::seals_here()) == body->seals;
    if (!honest) return;
    session_ = body->session;
    up_key_ = {emu::session_key(key_, *body, 0, emu::KeyUse::to_fabric), body->seals};
    down_key_ = {emu::session_key(key_, *body, 0, emu::KeyUse::to_node), body->seals};
    last_handshake_ = *body;
  }

  void raw_to_fabric(Input& input) {
    const auto bytes = input.bytes(input.take<std::uint16_t>() % 2048);
    const std::uint64_t records = fabric_.channel(0).in().records_delivered();
    const bool attached = fabric_.attached(0);
    const emu::Arrival arrival = fabric_.receive(bytes, now_ns_);
    CHECK(arrival.node == emu::kNoNode && arrival.reply.empty());
    CHECK(fabric_.attached(0) == attached);
    CHECK(fabric_.channel(0).in().records_delivered() == records);
  }
  void raw_to_node(Input& input) {
    const auto bytes = input.bytes(input.take<std::uint16_t>() % 2048);
    const std::uint64_t epoch = node_.epoch().number;
    const bool open = node_.is_open();
    node_.receive(bytes, now_ns_);
    CHECK(node_.epoch().number == epoch && node_.is_open() == open);
  }

  void forge_data(Input& input, bool up) {
    const emu::Channel& victim = up ? fabric_.channel(0) : node_.channel();
    FrameHeader header = input.take<FrameHeader>();
    header.magic = emu::kFrameMagic;
    header.version = emu::kFrameVersion;
    header.type = FrameType::data;
    header.flags &= emu::kFlagsKnown;
    header.session = session_;
    header.node = 0;
    // Near what is expected, so that most of it has an effect.
    header.sequence = victim.in().ack() + header.sequence % 256 - 16;
    if ((header.ack & 3) != 0) header.ack = victim.out().next() - header.ack % 64;
    const auto payload = input.bytes(input.take<std::uint16_t>() % 512 & ~3U);
    header.length = static_cast<std::uint16_t>(payload.size() & ~std::size_t{3});
    std::vector<std::byte> frame(emu::kFrameOverhead + header.length);
    std::memcpy(frame.data(), &header, sizeof header);
    std::copy_n(payload.begin(), header.length, frame.begin() + sizeof header);
    (up ? up_key_ : down_key_).seal(frame, header.number);
    if (up) {
      (void)fabric_.receive(frame, now_ns_);
    } else {
      node_.receive(frame, now_ns_);
    }
  }

  void forge_handshake(Input& input, bool up) {
    FrameHeader header = input.take<FrameHeader>();
    Handshake body = last_handshake_;
    // Overwrites a piece of the last honest body.
    const std::size_t at = input.take<std::uint8_t>() % sizeof body;
    const auto piece =
        input.bytes(std::min<std::size_t>(input.take<std::uint8_t>() % 32, sizeof body - at));
    if (!piece.empty()) {
      std::memcpy(reinterpret_cast<std::byte*>(&body) + at, piece.data(), piece.size());
    }
    header.magic = emu::kFrameMagic;
    header.version = emu::kFrameVersion;
    header.type = static_cast<FrameType>(1 + static_cast<unsigned>(header.type) % 4);
    header.flags = 0;
    header.length = sizeof body;
    std::vector<std::byte> frame(emu::kHandshakeBytes);
    std::memcpy(frame.data(), &header, sizeof header);
    std::memcpy(frame.data() + sizeof header, &body, sizeof body);
    const bool confirm = header.type == FrameType::confirm;
    emu::seal_handshake(frame,
                        confirm ? emu::session_key(key_, body, 0, emu::KeyUse::confirm) : key_);
    if (up) {
      to_fabric(frame);
    } else {
      node_.receive(frame, now_ns_);
    }
  }

  void write(Input& input) {
    const auto body = input.bytes(input.take<std::uint16_t>() % 4096);
    const auto kind = static_cast<emu::RecordKind>(1 + input.take<std::uint8_t>() % 4);
    (void)node_.send(kind, body, {});
    (void)fabric_.channel(0).send(kind, {}, body);
  }
  void read() {
    while (const auto record = node_.front()) {
      parse(*record);
      node_.pop();
    }
    emu::Channel& channel = fabric_.channel(0);
    while (const auto record = channel.front()) {
      parse(*record);
      channel.pop();
    }
    CHECK(channel.in().window() <= kLimits.window_frames);
  }
  void parse(const emu::Record& record) {
    CHECK(record.body.size() <= emu::kRecordBodyMax);
    std::uint64_t sum = 0;
    if (const auto tx = emu::parse_tx(record.body)) {
      CHECK(tx->packet.size() == tx->desc.length && tx->desc.length <= emu::kPacketBytesMax);
      for (const std::byte b : tx->packet) sum += static_cast<unsigned>(b);
    }
    if (const auto rx = emu::parse_rx(record.body)) {
      CHECK(rx->packet.size() == rx->desc.length && rx->desc.length <= emu::kPacketBytesMax);
      for (const std::byte b : rx->packet) sum += static_cast<unsigned>(b);
    }
    sum +=
        emu::parse_injected(record.body).has_value() + emu::parse_answer(record.body).has_value();
    sink_ = sink_ + sum;
  }

  void ethernet(Input& input) {
    fabric::Station self{{2, 0, 0, 0, 0, 1}, {0x0100000a, 0xb712}};
    auto frame = input.bytes(input.take<std::uint16_t>() % 2048);
    if (const auto udp = fabric::parse_udp_frame(frame, self)) {
      CHECK(udp->datagram.data() + udp->datagram.size() <= frame.data() + frame.size());
    }
    (void)fabric::answer_arp(frame, self);
    if (frame.size() < fabric::kUdpHeadersBytes) return;
    fabric::write_udp_headers(frame, self, self, 1);
    const auto own = fabric::parse_udp_frame(frame, self);
    CHECK(own && own->datagram.size() == frame.size() - fabric::kUdpHeadersBytes);
  }

  const emu::Key key_{7};
  emu::Acceptor fabric_;
  emu::Initiator node_;
  std::uint64_t now_ns_ = 1'000'000'000;
  std::uint64_t session_ = 0;
  emu::DataKey up_key_;
  emu::DataKey down_key_;
  Handshake last_handshake_{};
  volatile std::uint64_t sink_ = 0;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Input input(data, size);
  Harness harness;
  harness.open();
  while (!input.empty()) harness.step(input);
  return 0;
}
