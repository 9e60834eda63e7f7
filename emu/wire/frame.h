// The attachment frame: one UDP datagram between hcad and fabricd. In: untrusted bytes. Out: a
// checked header and a payload inside the datagram, or nothing. Called by emu/wire/channel and
// emu/wire/session on both ends.
//
//   FrameHeader (64) | payload (0 … frame_bytes - 80) | tag (16)
//
// The payloads of the data frames of a session, in order of `sequence`, are one stream of records
// (emu/wire/record.h): a record may begin in one frame and end in the next. So every frame of a
// busy sender is full and equal in size, which is what UDP_SEGMENT wants.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <type_traits>

#include "emu/base/units.h"
#include "emu/wire/terms.h"

namespace emu {

inline constexpr std::uint32_t kFrameMagic = 0x54494c46;  // "FLIT"
inline constexpr std::uint8_t kFrameVersion = 3;

enum class FrameType : std::uint8_t {
  hello = 1,    // hcad: let me in (handshake body, tag by the cluster key)
  welcome = 2,  // fabricd: prove that you hear me (tag by the cluster key)
  confirm = 3,  // hcad: the proof (tag by the session key)
  refuse = 4,   // fabricd: no, and why (tag by the cluster key)
  data = 5,     // either: records, acknowledgement, time (tag by the session key)
};

inline constexpr std::uint16_t kFlagBye = 1;  // the sender closes the session on purpose
// The sender has not heard the other end for SessionTiming::silent_ns: it says hello beside.
inline constexpr std::uint16_t kFlagDeaf = 2;
inline constexpr std::uint16_t kFlagsKnown = kFlagBye | kFlagDeaf;

struct FrameHeader {
  std::uint32_t magic;
  std::uint8_t version;
  FrameType type;
  std::uint16_t flags;
  std::uint64_t session;   // names one epoch; its low 16 bits are the node
  std::uint64_t number;    // of this transmission: never used twice under one key
  std::uint64_t sequence;  // place of the payload in the stream; ignored when there is none
  std::uint64_t ack;       // every frame before this one arrived
  std::uint64_t sack;      // bit i: frame ack + 1 + i arrived too
  Cycle now_cycle;         // emulated time when this was sent; 0 from hcad
  std::uint32_t window;    // so many frames from `ack` on find a place
  NodeId node;             // who is attached: the same in both directions
  std::uint16_t length;    // bytes of payload, a multiple of 4
};
static_assert(sizeof(FrameHeader) == 64 && std::has_unique_object_representations_v<FrameHeader>);
static_assert(offsetof(FrameHeader, type) == 5 && offsetof(FrameHeader, session) == 8 &&
              offsetof(FrameHeader, number) == 16 && offsetof(FrameHeader, sequence) == 24 &&
              offsetof(FrameHeader, ack) == 32 && offsetof(FrameHeader, sack) == 40 &&
              offsetof(FrameHeader, now_cycle) == 48 && offsetof(FrameHeader, window) == 56 &&
              offsetof(FrameHeader, node) == 60 && offsetof(FrameHeader, length) == 62);

inline constexpr std::size_t kTagBytes = 16;
inline constexpr std::size_t kFrameOverhead = sizeof(FrameHeader) + kTagBytes;
inline constexpr std::size_t kFrameBytesMin = 576;       // the least any IPv4 host must take
inline constexpr std::size_t kFrameBytesDefault = 1472;  // fills an Ethernet frame of 1500
inline constexpr std::size_t kFrameBytesMax = 8972;      // fills a jumbo frame of 9000

using Nonce = std::array<std::uint8_t, 16>;

// Body of hello, welcome, confirm and refuse: one layout, so that no answer is larger than its
// question and the fabric cannot be used to amplify.
struct Handshake {
  Nonce client_nonce;      // drawn by hcad for this attempt
  Nonce server_nonce;      // drawn by fabricd from a secret, without keeping state; 0 in hello
  std::uint64_t instance;  // drawn once per hcad process
  std::uint64_t session;   // welcome, confirm: the new session
  std::uint64_t previous_session;    // hello: what hcad has; 0 none
  std::uint64_t previous_delivered;  // records of `previous_session` the writer has taken; or
                                     // kDeliveredUnknown
  std::uint64_t cycle_ps;            // welcome: length of a cycle
  std::uint64_t boot;                // welcome: changes when fabricd restarts
  std::uint32_t frame_bytes;         // largest datagram the writer can take
  std::uint32_t message_version;     // kMessageVersion of emu/wire/message.h
  std::uint32_t seals;    // hello: bits of Seal that the writer can; then the one of the session
  std::uint32_t refusal;  // refuse: a Refusal
  std::array<char, 32> name;  // of the node, zero-filled
  TermsText terms;            // welcome: of the fabric's cluster.toml
};
static_assert(sizeof(Handshake) == 496 && std::has_unique_object_representations_v<Handshake>);
static_assert(offsetof(Handshake, instance) == 32 && offsetof(Handshake, frame_bytes) == 80 &&
              offsetof(Handshake, name) == 96 && offsetof(Handshake, terms) == 128);
inline constexpr std::size_t kHandshakeBytes = kFrameOverhead + sizeof(Handshake);
static_assert(kHandshakeBytes <= kFrameBytesMin);
inline constexpr std::uint64_t kDeliveredUnknown = ~std::uint64_t{0};

enum class Refusal : std::uint32_t {
  none = 0,
  version = 1,       // another kFrameVersion or kMessageVersion
  unknown_node = 2,  // no such node in the configuration
  busy = 3,          // another process is attached as this node and alive
  link_down = 4,     // the node's link is out of service
};
// Why a node may not attach now, as far as whoever asks cannot know; none: it may.
using Objection = std::function<Refusal(NodeId)>;

struct FrameView {
  FrameHeader header;
  std::span<const std::byte> bytes;    // the whole datagram, tag included
  std::span<const std::byte> payload;  // inside `bytes`
};

// The shape only: magic, version, type, flags, lengths. Nothing is authenticated yet.
std::optional<FrameView> parse_frame(std::span<const std::byte> datagram);
// A handshake frame's body; the caller has checked the tag.
std::optional<Handshake> parse_handshake(const FrameView& frame);

}  // namespace emu
