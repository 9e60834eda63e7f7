// Keys of the attachment. In: the cluster's key file and the nonces of a handshake. Out: tags of
// frames. Called by emu/wire/session; the file functions by the daemons and `flitnet up`.
//
// Handshakes carry a BLAKE2b tag under the cluster key. Data frames carry the tag of an AEAD
// (nothing is encrypted) under a key of the session and the direction, with the transmission number
// as the nonce: AES-256-GCM where both processors have instructions for it, else ChaCha20-Poly1305.
// Measured for 1456 bytes: 0.33 and 0.70 µs, against 1.6 µs of BLAKE2b.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "emu/base/result.h"
#include "emu/wire/frame.h"

namespace emu {

using Key = std::array<std::uint8_t, 32>;

// The key file: 64 hexadecimal digits, readable by its owner only.
Result<Key> read_key_file(const std::string& path);
// Makes the file with a fresh key if it is absent; returns the key in it.
Result<Key> ensure_key_file(const std::string& path);
// Fresh randomness from the operating system, for SessionSecrets.
Key random_key();

// Keys of one session: what both sides put into the handshake is in them. One key, one use.
enum class KeyUse : std::uint8_t { to_fabric = 1, to_node = 2, confirm = 3 };
Key session_key(const Key& cluster, const Handshake& agreed, NodeId node, KeyUse use);

// Keyed hash of some words: nonces and session names are drawn with it from a secret.
Key derive(const Key& secret, std::span<const std::byte> input);

// The tag is the last kTagBytes of `frame`, everything before it is covered.
void seal_handshake(std::span<std::byte> frame, const Key& key);
bool opens_handshake(std::span<const std::byte> frame, const Key& key);

// How data frames are tagged: a bit each, of Handshake::seals.
enum class Seal : std::uint32_t { chacha20_poly1305 = 1, aes256_gcm = 2 };
// The bits of what this machine can.
std::uint32_t seals_here();
// The best of some, as its bit alone; 0 if none of them is known.
std::uint32_t best_seal(std::uint32_t seals);

// One direction of one session.
class DataKey {
 public:
  DataKey() = default;
  // `seal`: the bit of one that this machine can.
  DataKey(const Key& key, std::uint32_t seal);
  void seal(std::span<std::byte> frame, std::uint64_t number) const;
  bool opens(std::span<const std::byte> frame, std::uint64_t number) const;

 private:
  Seal seal_ = Seal::chacha20_poly1305;
  Key key_{};
  alignas(16) std::array<unsigned char, 512> expanded_{};  // AES: the key schedule
};

}  // namespace emu
