#include "emu/wire/key.h"

#include <fcntl.h>
#include <sodium.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <type_traits>

#include "emu/base/check.h"

namespace emu {
namespace {

static_assert(kTagBytes == crypto_aead_chacha20poly1305_ietf_ABYTES);
static_assert(sizeof(Key) == crypto_aead_chacha20poly1305_ietf_KEYBYTES);
static_assert(sizeof(Key) >= crypto_generichash_KEYBYTES_MIN);

constexpr std::size_t kHexDigits = 2 * sizeof(Key);

const unsigned char* raw(std::span<const std::byte> bytes) {
  return reinterpret_cast<const unsigned char*>(bytes.data());
}

void hash(std::span<unsigned char> out, std::span<const std::byte> in, const Key& key) {
  CHECK(crypto_generichash(out.data(), out.size(), raw(in), in.size(), key.data(), key.size()) ==
        0);
}

static_assert(kTagBytes == crypto_aead_aes256gcm_ABYTES);
static_assert(sizeof(Key) == crypto_aead_aes256gcm_KEYBYTES);
static_assert(crypto_aead_aes256gcm_NPUBBYTES == crypto_aead_chacha20poly1305_ietf_NPUBBYTES);
static_assert(sizeof(crypto_aead_aes256gcm_state) == 512);

template <class Bytes>
auto* aes(Bytes& expanded) {
  using State = std::conditional_t<std::is_const_v<Bytes>, const crypto_aead_aes256gcm_state,
                                   crypto_aead_aes256gcm_state>;
  return reinterpret_cast<State*>(expanded.data());
}

using DataNonce = std::array<unsigned char, crypto_aead_chacha20poly1305_ietf_NPUBBYTES>;

DataNonce nonce_of(std::uint64_t number) {
  DataNonce nonce{};
  std::memcpy(nonce.data(), &number, sizeof number);
  return nonce;
}

class File {
 public:
  explicit File(int fd) : fd_(fd) {}
  ~File() {
    if (fd_ >= 0) ::close(fd_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  int fd() const { return fd_; }

 private:
  int fd_;
};

}  // namespace

Result<Key> read_key_file(const std::string& path) {
  const File file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (file.fd() < 0) return fail("key file {}: {}", path, std::strerror(errno));
  struct stat status {};
  if (::fstat(file.fd(), &status) != 0) return fail("key file {}: {}", path, std::strerror(errno));
  if (!S_ISREG(status.st_mode)) return fail("key file {}: must be a regular file", path);
  if ((status.st_mode & 077) != 0) {
    return fail("key file {}: readable by others (mode {:o}); chmod 600 it", path,
                status.st_mode & 0777U);
  }
  std::array<char, kHexDigits> text{};
  if (::read(file.fd(), text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
    return fail("key file {}: shorter than {} hexadecimal digits", path, kHexDigits);
  }
  Key key{};
  std::size_t bytes = 0;
  if (sodium_hex2bin(key.data(), key.size(), text.data(), text.size(), nullptr, &bytes, nullptr) !=
          0 ||
      bytes != key.size()) {
    return fail("key file {}: not {} hexadecimal digits", path, kHexDigits);
  }
  return key;
}

// Several processes of a cluster may come here at once: the file appears whole or not at all.
Result<Key> ensure_key_file(const std::string& path) {
  if (::access(path.c_str(), F_OK) == 0) return read_key_file(path);
  const std::string fresh = fmt::format("{}.{}", path, ::getpid());
  const File file(::open(fresh.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  if (file.fd() < 0) return fail("key file {}: {}", fresh, std::strerror(errno));
  const Key key = random_key();
  std::array<char, kHexDigits + 1> text{};
  sodium_bin2hex(text.data(), text.size(), key.data(), key.size());
  text.back() = '\n';
  const bool written =
      ::write(file.fd(), text.data(), text.size()) == static_cast<ssize_t>(text.size());
  const bool placed = written && (::link(fresh.c_str(), path.c_str()) == 0 || errno == EEXIST);
  const int error = errno;
  ::unlink(fresh.c_str());
  if (!placed) return fail("key file {}: {}", path, std::strerror(error));
  return read_key_file(path);  // ours, or that of who was faster
}

Key random_key() {
  CHECK(sodium_init() >= 0);
  Key key{};
  randombytes_buf(key.data(), key.size());
  return key;
}

Key derive(const Key& secret, std::span<const std::byte> input) {
  Key out{};
  hash(out, input, secret);
  return out;
}

Key session_key(const Key& cluster, const Handshake& agreed, NodeId node, KeyUse use) {
  struct {
    Nonce client;
    Nonce server;
    std::uint64_t instance;
    std::uint64_t session;
    NodeId node;
    std::uint8_t use;
    std::array<char, 5> label;
  } input{agreed.client_nonce,
          agreed.server_nonce,
          agreed.instance,
          agreed.session,
          node,
          static_cast<std::uint8_t>(use),
          {'f', 'l', 'i', 't', '1'}};
  static_assert(std::has_unique_object_representations_v<decltype(input)>);
  return derive(cluster, std::as_bytes(std::span(&input, 1)));
}

void seal_handshake(std::span<std::byte> frame, const Key& key) {
  CHECK(frame.size() >= kFrameOverhead);
  const auto covered = frame.first(frame.size() - kTagBytes);
  hash({reinterpret_cast<unsigned char*>(frame.last(kTagBytes).data()), kTagBytes}, covered, key);
}

bool opens_handshake(std::span<const std::byte> frame, const Key& key) {
  CHECK(frame.size() >= kFrameOverhead);
  std::array<unsigned char, kTagBytes> tag{};
  hash(tag, frame.first(frame.size() - kTagBytes), key);
  return sodium_memcmp(tag.data(), frame.last(kTagBytes).data(), kTagBytes) == 0;
}

std::uint32_t seals_here() {
  CHECK(sodium_init() >= 0);
  const auto everywhere = static_cast<std::uint32_t>(Seal::chacha20_poly1305);
  const auto aes = static_cast<std::uint32_t>(Seal::aes256_gcm);
  return crypto_aead_aes256gcm_is_available() != 0 ? everywhere | aes : everywhere;
}

std::uint32_t best_seal(std::uint32_t seals) {
  for (const Seal seal : {Seal::aes256_gcm, Seal::chacha20_poly1305}) {
    const auto bit = static_cast<std::uint32_t>(seal);
    if ((seals & bit) != 0) return bit;
  }
  return 0;
}

DataKey::DataKey(const Key& key, std::uint32_t seal) : seal_(static_cast<Seal>(seal)), key_(key) {
  CHECK((seals_here() & seal) != 0 && best_seal(seal) == seal);
  if (seal_ == Seal::aes256_gcm)
    CHECK(crypto_aead_aes256gcm_beforenm(aes(expanded_), key.data()) == 0);
}

void DataKey::seal(std::span<std::byte> frame, std::uint64_t number) const {
  CHECK(frame.size() >= kFrameOverhead);
  const auto covered = frame.first(frame.size() - kTagBytes);
  auto* tag = reinterpret_cast<unsigned char*>(frame.last(kTagBytes).data());
  const DataNonce nonce = nonce_of(number);
  unsigned char nothing = 0;
  if (seal_ == Seal::aes256_gcm) {
    crypto_aead_aes256gcm_encrypt_detached_afternm(&nothing, tag, nullptr, &nothing, 0,
                                                   raw(covered), covered.size(), nullptr,
                                                   nonce.data(), aes(expanded_));
  } else {
    crypto_aead_chacha20poly1305_ietf_encrypt_detached(&nothing, tag, nullptr, &nothing, 0,
                                                       raw(covered), covered.size(), nullptr,
                                                       nonce.data(), key_.data());
  }
}

bool DataKey::opens(std::span<const std::byte> frame, std::uint64_t number) const {
  CHECK(frame.size() >= kFrameOverhead);
  const auto covered = frame.first(frame.size() - kTagBytes);
  const auto tag = frame.last(kTagBytes);
  const DataNonce nonce = nonce_of(number);
  unsigned char nothing = 0;
  if (seal_ == Seal::aes256_gcm) {
    return crypto_aead_aes256gcm_decrypt_detached_afternm(&nothing, nullptr, &nothing, 0, raw(tag),
                                                          raw(covered), covered.size(),
                                                          nonce.data(), aes(expanded_)) == 0;
  }
  return crypto_aead_chacha20poly1305_ietf_decrypt_detached(&nothing, nullptr, &nothing, 0,
                                                            raw(tag), raw(covered), covered.size(),
                                                            nonce.data(), key_.data()) == 0;
}

}  // namespace emu
