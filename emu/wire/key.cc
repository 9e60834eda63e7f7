#include "emu/wire/key.h"

#include <fcntl.h>
#include <sodium.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

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
  const File file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (file.fd() < 0) return fail("key file {}: {}", path, std::strerror(errno));
  struct stat status {};
  if (::fstat(file.fd(), &status) != 0) return fail("key file {}: {}", path, std::strerror(errno));
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

void seal_data(std::span<std::byte> frame, const Key& key, std::uint64_t number) {
  CHECK(frame.size() >= kFrameOverhead);
  const auto covered = frame.first(frame.size() - kTagBytes);
  auto* tag = reinterpret_cast<unsigned char*>(frame.last(kTagBytes).data());
  unsigned char nothing = 0;
  crypto_aead_chacha20poly1305_ietf_encrypt_detached(&nothing, tag, nullptr, &nothing, 0,
                                                     raw(covered), covered.size(), nullptr,
                                                     nonce_of(number).data(), key.data());
}

bool opens_data(std::span<const std::byte> frame, const Key& key, std::uint64_t number) {
  CHECK(frame.size() >= kFrameOverhead);
  const auto covered = frame.first(frame.size() - kTagBytes);
  const auto tag = frame.last(kTagBytes);
  unsigned char nothing = 0;
  return crypto_aead_chacha20poly1305_ietf_decrypt_detached(
             &nothing, nullptr, &nothing, 0, raw(tag), raw(covered), covered.size(),
             nonce_of(number).data(), key.data()) == 0;
}

}  // namespace emu
