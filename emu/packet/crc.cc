#include "emu/packet/crc.h"

#include <array>
#include <cstring>

#include "emu/base/check.h"
#include "emu/packet/headers.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace emu {
namespace {

// A CRC in the reflected form: the first bit of a byte is its lowest, the register's lowest bit is
// the highest power. `Poly` without its leading term, written highest power first.
template <int Width, std::uint32_t Poly>
struct Crc {
  static constexpr std::uint32_t reflect(std::uint32_t value) {
    std::uint32_t out = 0;
    for (int i = 0; i < Width; ++i) out |= (value >> i & 1) << (Width - 1 - i);
    return out;
  }
  static constexpr std::uint32_t kReflected = reflect(Poly);

  // kTables[t][b]: remainder of byte b followed by t zero bytes.
  using Tables = std::array<std::array<std::uint32_t, 256>, 8>;
  static constexpr Tables make_tables() {
    Tables tables{};
    for (std::uint32_t b = 0; b < 256; ++b) {
      std::uint32_t r = b;
      for (int i = 0; i < 8; ++i) r = (r >> 1) ^ ((r & 1) != 0 ? kReflected : 0);
      tables[0][b] = r;
    }
    for (std::size_t t = 1; t < 8; ++t) {
      for (std::size_t b = 0; b < 256; ++b) {
        const std::uint32_t r = tables[t - 1][b];
        tables[t][b] = (r >> 8) ^ tables[0][r & 0xff];
      }
    }
    return tables;
  }
  static constexpr Tables kTables = make_tables();

  // Eight bytes at a time by eight tables (slicing).
  static std::uint32_t table(std::uint32_t crc, const std::byte* p, std::size_t n) {
    for (; n >= 8; p += 8, n -= 8) {
      std::uint64_t word = 0;
      std::memcpy(&word, p, 8);
      word ^= crc;
      crc = 0;
      for (std::size_t i = 0; i < 8; ++i) crc ^= kTables[7 - i][word >> (8 * i) & 0xff];
    }
    for (; n > 0; ++p, --n) {
      crc = (crc >> 8) ^ kTables[0][(crc ^ std::to_integer<std::uint32_t>(*p)) & 0xff];
    }
    return crc;
  }

  // x^n mod P as a reflected 64-bit word: the factor that moves 64 bits n + 1 places on, since the
  // product of two reflected words is one place short.
  static constexpr std::uint64_t power(int n) {
    std::uint32_t r = 1;
    for (int i = 0; i < n; ++i) {
      const bool carry = (r >> (Width - 1) & 1) != 0;
      r = (r << 1) & (Width == 32 ? ~0u : (1u << (Width % 32)) - 1);
      if (carry) r ^= Poly;
    }
    return static_cast<std::uint64_t>(reflect(r)) << (64 - Width);
  }

#if defined(__x86_64__)
  // Adds `x`, moved `Bits` places on, to the block that stands there.
  template <int Bits>
  [[gnu::target("pclmul,sse4.1"), gnu::always_inline]] static __m128i fold(__m128i x,
                                                                           __m128i block) {
    const __m128i factors = _mm_set_epi64x(static_cast<std::int64_t>(power(Bits - 1)),
                                           static_cast<std::int64_t>(power(Bits + 63)));
    const __m128i early = _mm_clmulepi64_si128(x, factors, 0x00);
    const __m128i late = _mm_clmulepi64_si128(x, factors, 0x11);
    return _mm_xor_si128(_mm_xor_si128(early, late), block);
  }
  [[gnu::target("pclmul,sse4.1"), gnu::always_inline]] static __m128i load(const std::byte* p) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  }
  // Four lanes of 16 bytes, folded 64 bytes on; then into one; its remainder by the tables.
  [[gnu::target("pclmul,sse4.1")]] static std::uint32_t multiply(std::uint32_t crc,
                                                                 const std::byte* p,
                                                                 std::size_t n) {
    __m128i a = _mm_xor_si128(load(p), _mm_cvtsi32_si128(static_cast<int>(crc)));
    __m128i b = load(p + 16);
    __m128i c = load(p + 32);
    __m128i d = load(p + 48);
    for (p += 64, n -= 64; n >= 64; p += 64, n -= 64) {
      a = fold<512>(a, load(p));
      b = fold<512>(b, load(p + 16));
      c = fold<512>(c, load(p + 32));
      d = fold<512>(d, load(p + 48));
    }
    d = fold<128>(fold<128>(fold<128>(a, b), c), d);
    for (; n >= 16; p += 16, n -= 16) d = fold<128>(d, load(p));
    std::byte rest[16];
    _mm_storeu_si128(reinterpret_cast<__m128i*>(rest), d);
    return table(table(0, rest, sizeof rest), p, n);
  }
  static std::uint32_t update(std::uint32_t crc, const std::byte* p, std::size_t n) {
    static const bool can_multiply =
        __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1");
    return n >= 64 && can_multiply ? multiply(crc, p, n) : table(crc, p, n);
  }
#else
  static std::uint32_t update(std::uint32_t crc, const std::byte* p, std::size_t n) {
    return table(crc, p, n);
  }
#endif
};

using Crc32 = Crc<32, 0x04C11DB7>;
using Crc16 = Crc<16, 0x100B>;

}  // namespace

std::uint32_t crc32_update(std::uint32_t crc, std::span<const std::byte> bytes) {
  return Crc32::update(crc, bytes.data(), bytes.size());
}
std::uint16_t crc16_update(std::uint16_t crc, std::span<const std::byte> bytes) {
  return static_cast<std::uint16_t>(Crc16::update(crc, bytes.data(), bytes.size()));
}
std::uint32_t crc32_update_table(std::uint32_t crc, std::span<const std::byte> bytes) {
  return Crc32::table(crc, bytes.data(), bytes.size());
}
std::uint16_t crc16_update_table(std::uint16_t crc, std::span<const std::byte> bytes) {
  return static_cast<std::uint16_t>(Crc16::table(crc, bytes.data(), bytes.size()));
}

std::uint32_t icrc_of(std::span<const std::byte> packet) {
  // What a switch or router may change counts as ones (IBA 7.8.1): the lane; of the GRH traffic
  // class, flow label and hop limit; of the BTH the byte with FECN and BECN.
  std::array<std::byte, 64> head;
  const std::size_t head_bytes = packet.size() < head.size() ? packet.size() : head.size();
  std::memcpy(head.data(), packet.data(), head_bytes);
  const bool has_grh = (head[1] & std::byte{3}) == std::byte{3};
  const std::size_t bth = kLrhBytes + (has_grh ? kGrhBytes : 0);
  CHECK(head_bytes >= bth + kBthBytes);
  head[0] |= std::byte{0xf0};
  if (has_grh) {
    head[kLrhBytes] |= std::byte{0x0f};
    head[kLrhBytes + 1] = head[kLrhBytes + 2] = head[kLrhBytes + 3] = std::byte{0xff};
    head[kLrhBytes + 7] = std::byte{0xff};
  }
  head[bth + 4] = std::byte{0xff};
  const std::uint32_t crc = crc32_update(~0u, {head.data(), head_bytes});
  return ~crc32_update(crc, packet.subspan(head_bytes));
}

std::uint16_t vcrc_of(std::span<const std::byte> packet) {
  return static_cast<std::uint16_t>(~crc16_update(0xffff, packet));
}

}  // namespace emu
