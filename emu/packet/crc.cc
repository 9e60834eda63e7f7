#include "emu/packet/crc.h"

#include <algorithm>
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

#if defined(__x86_64__)
  // For the multiplications both CRCs have 32 bits: that of 16 is the upper half of one with the
  // polynomial P x^16.
  static constexpr std::uint32_t kPoly32 = Poly << (32 - Width);

  template <typename T>
  static constexpr T mirror(T value, int bits) {
    T out = 0;
    for (int i = 0; i < bits; ++i) out |= (value >> i & 1) << (bits - 1 - i);
    return out;
  }
  // x^n mod P as a reflected 64-bit word: the factor that moves 64 bits n + 1 places on, since the
  // product of two reflected words is one place short.
  static constexpr std::uint64_t power(int n) {
    std::uint32_t r = 1;
    for (int i = 0; i < n; ++i) r = (r << 1) ^ ((r >> 31) != 0 ? kPoly32 : 0);
    return std::uint64_t{mirror(r, 32)} << 32;
  }
  // x^64 / P without the remainder, and P: each of 33 bits, reflected.
  static constexpr std::uint64_t quotient() {
    std::uint64_t q = 0;
    std::uint64_t r = 0;
    for (int degree = 64; degree >= 0; --degree) {
      r = r << 1 | (degree == 64 ? 1 : 0);
      const bool carry = (r >> 32) != 0;
      if (carry) r ^= std::uint64_t{1} << 32 | kPoly32;
      q = q << 1 | (carry ? 1 : 0);
    }
    return mirror(q, 33);
  }
  static constexpr std::uint64_t kQuotient = quotient();
  static constexpr std::uint64_t kDivisor = mirror(std::uint64_t{1} << 32 | kPoly32, 33);

  [[gnu::target("pclmul,sse4.1"), gnu::always_inline]] static __m128i two(std::uint64_t high,
                                                                          std::uint64_t low) {
    return _mm_set_epi64x(static_cast<std::int64_t>(high), static_cast<std::int64_t>(low));
  }
  [[gnu::target("pclmul,sse4.1"), gnu::always_inline]] static __m128i load(const std::byte* p) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  }
  // Adds `x`, moved `Bits` places on, to the block that stands there.
  template <int Bits>
  [[gnu::target("pclmul,sse4.1"), gnu::always_inline]] static __m128i fold(__m128i x,
                                                                           __m128i block) {
    const __m128i factors = two(power(Bits - 1), power(Bits + 63));
    const __m128i early = _mm_clmulepi64_si128(x, factors, 0x00);
    const __m128i late = _mm_clmulepi64_si128(x, factors, 0x11);
    return _mm_xor_si128(_mm_xor_si128(early, late), block);
  }
  // The first two blocks, with as many zeros in front as make the rest whole blocks: zeros before a
  // message do not change a register that starts at zero, so `crc` is put into the message.
  struct Begin {
    __m128i first;
    __m128i second;
  };
  [[gnu::target("pclmul,sse4.1"), gnu::always_inline]] static Begin begin(std::uint32_t crc,
                                                                          const std::byte* head,
                                                                          const std::byte* p,
                                                                          std::size_t zeros) {
    alignas(16) static constexpr std::int8_t kMove[] = {
        -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1,  //
        0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15,  //
        -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1};
    const auto move = [&](__m128i x, std::size_t from)
        __attribute__((target("pclmul,sse4.1"), always_inline)) {
      return _mm_shuffle_epi8(x, _mm_loadu_si128(reinterpret_cast<const __m128i*>(kMove + from)));
    };
    const __m128i start = _mm_xor_si128(load(head), _mm_cvtsi32_si128(static_cast<int>(crc)));
    const __m128i change = _mm_xor_si128(start, load(p));  // what the second block has of it
    return {move(start, 16 - zeros), _mm_xor_si128(load(p + 16 - zeros), move(change, 32 - zeros))};
  }
  // The remainder of 128 bits: folded to 96, to 64, then by Barrett's quotient.
  [[gnu::target("pclmul,sse4.1"), gnu::always_inline]] static std::uint32_t reduce(__m128i x) {
    const __m128i factors = two(power(63), power(95));
    const __m128i late = _mm_slli_si128(_mm_srli_si128(x, 8), 4);
    x = _mm_xor_si128(_mm_clmulepi64_si128(x, factors, 0x00), late);
    x = _mm_xor_si128(_mm_clmulepi64_si128(x, factors, 0x10), x);
    x = _mm_srli_si128(x, 8);
    const __m128i barrett = two(kDivisor, kQuotient);
    const __m128i low = _mm_set_epi32(0, 0, 0, -1);
    __m128i q = _mm_and_si128(_mm_clmulepi64_si128(_mm_and_si128(x, low), barrett, 0x00), low);
    x = _mm_xor_si128(x, _mm_clmulepi64_si128(q, barrett, 0x10));
    return static_cast<std::uint32_t>(_mm_extract_epi32(x, 1));
  }
  [[gnu::target("pclmul,sse4.1"), gnu::always_inline]] static std::uint32_t finish(
      __m128i a, __m128i b, __m128i c, __m128i d, const std::byte* p, std::size_t n) {
    d = fold<128>(fold<128>(fold<128>(a, b), c), d);
    for (; n >= 16; p += 16, n -= 16) d = fold<128>(d, load(p));
    return reduce(d);
  }
  // Four blocks of 16 bytes, folded 64 bytes on; then into one. `head` stands for the first 16 of
  // the `n` bytes at `p`.
  [[gnu::target("pclmul,sse4.1")]] static std::uint32_t multiply(std::uint32_t crc,
                                                                 const std::byte* head,
                                                                 const std::byte* p,
                                                                 std::size_t n) {
    const std::size_t zeros = -n % 16;
    auto [a, b] = begin(crc, head, p, zeros);
    p += 16 - zeros;
    __m128i c = load(p + 16);
    __m128i d = load(p + 32);
    for (p += 48, n -= 64 - zeros; n >= 64; p += 64, n -= 64) {
      a = fold<512>(a, load(p));
      b = fold<512>(b, load(p + 16));
      c = fold<512>(c, load(p + 32));
      d = fold<512>(d, load(p + 48));
    }
    return finish(a, b, c, d, p, n);
  }
  [[gnu::target("vpclmulqdq,avx512f,pclmul,sse4.1"), gnu::always_inline]] static __m512i fold_wide(
      __m512i x, __m512i factors, __m512i block) {
    const __m512i early = _mm512_clmulepi64_epi128(x, factors, 0x00);
    const __m512i late = _mm512_clmulepi64_epi128(x, factors, 0x11);
    return _mm512_ternarylogic_epi64(early, late, block, 0x96);  // all three added
  }
  // The same with the four blocks in one register, and four such registers side by side while the
  // message is long: one multiplication waits eight cycles for its result. (Masks that leave
  // nothing out: the plain forms of these intrinsics begin with an undefined register, of which g++
  // 12 warns.)
  [[gnu::target("vpclmulqdq,avx512f,pclmul,sse4.1")]] static std::uint32_t multiply_wide(
      std::uint32_t crc, const std::byte* head, const std::byte* p, std::size_t n) {
    const std::size_t zeros = -n % 16;
    const Begin head_blocks = begin(crc, head, p, zeros);
    p += 16 - zeros;
    __m512i x = _mm512_zextsi128_si512(head_blocks.first);
    x = _mm512_inserti32x4(x, head_blocks.second, 1);
    x = _mm512_inserti32x4(x, load(p + 16), 2);
    x = _mm512_inserti32x4(x, load(p + 32), 3);
    const __m512i factors = _mm512_maskz_broadcast_i32x4(0xffff, two(power(511), power(575)));
    p += 48;
    n -= 64 - zeros;
    if (n >= kSideBySideBytesMin) {
      const __m512i far = _mm512_maskz_broadcast_i32x4(0xffff, two(power(2047), power(2111)));
      __m512i y = _mm512_loadu_si512(p);
      __m512i z = _mm512_loadu_si512(p + 64);
      __m512i w = _mm512_loadu_si512(p + 128);
      for (p += 192, n -= 192; n >= 256; p += 256, n -= 256) {
        x = fold_wide(x, far, _mm512_loadu_si512(p));
        y = fold_wide(y, far, _mm512_loadu_si512(p + 64));
        z = fold_wide(z, far, _mm512_loadu_si512(p + 128));
        w = fold_wide(w, far, _mm512_loadu_si512(p + 192));
      }
      x = fold_wide(fold_wide(fold_wide(x, factors, y), factors, z), factors, w);
    }
    for (; n >= 64; p += 64, n -= 64) x = fold_wide(x, factors, _mm512_loadu_si512(p));
    return finish(_mm512_maskz_extracti32x4_epi32(0xf, x, 0),
                  _mm512_maskz_extracti32x4_epi32(0xf, x, 1),
                  _mm512_maskz_extracti32x4_epi32(0xf, x, 2),
                  _mm512_maskz_extracti32x4_epi32(0xf, x, 3), p, n);
  }
#endif

  static constexpr std::size_t kMultiplyBytesMin = 64;
  static constexpr std::size_t kSideBySideBytesMin = 192 + 256;  // at least one round of four

  static std::uint32_t update(CrcWay way, std::uint32_t crc, const std::byte* p, std::size_t n) {
    return n < kMultiplyBytesMin ? table(crc, p, n) : update_long(way, crc, p, p, n);
  }
  // `head` stands for the first 16 of the n >= 64 bytes at `p`.
  static std::uint32_t update_long(CrcWay way, std::uint32_t crc, const std::byte* head,
                                   const std::byte* p, std::size_t n) {
#if defined(__x86_64__)
    if (way == CrcWay::multiply_wide) return multiply_wide(crc, head, p, n);
    if (way == CrcWay::multiply) return multiply(crc, head, p, n);
#endif
    (void)way;
    return table(table(crc, head, 16), p + 16, n - 16);
  }
};

using Crc32 = Crc<32, 0x04C11DB7>;
using Crc16 = Crc<16, 0x100B>;

CrcWay best_way() {
  for (const CrcWay way : {CrcWay::multiply_wide, CrcWay::multiply}) {
    if (crc_can(way)) return way;
  }
  return CrcWay::table;
}
const CrcWay kBest = best_way();

}  // namespace

bool crc_can(CrcWay way) {
#if defined(__x86_64__)
  const bool multiply = __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1");
  const bool wide = __builtin_cpu_supports("vpclmulqdq") && __builtin_cpu_supports("avx512f");
  return way == CrcWay::table || (multiply && (way == CrcWay::multiply || wide));
#else
  return way == CrcWay::table;
#endif
}

std::uint32_t crc32_update(std::uint32_t crc, std::span<const std::byte> bytes) {
  return Crc32::update(kBest, crc, bytes.data(), bytes.size());
}
std::uint16_t crc16_update(std::uint16_t crc, std::span<const std::byte> bytes) {
  return static_cast<std::uint16_t>(Crc16::update(kBest, crc, bytes.data(), bytes.size()));
}
std::uint32_t crc32_update(CrcWay way, std::uint32_t crc, std::span<const std::byte> bytes) {
  CHECK(crc_can(way));
  return Crc32::update(way, crc, bytes.data(), bytes.size());
}
std::uint16_t crc16_update(CrcWay way, std::uint16_t crc, std::span<const std::byte> bytes) {
  CHECK(crc_can(way));
  return static_cast<std::uint16_t>(Crc16::update(way, crc, bytes.data(), bytes.size()));
}

std::uint32_t icrc_of(std::span<const std::byte> packet) {
  // What a switch or router may change counts as ones (IBA 7.8.1): the lane; of the GRH traffic
  // class, flow label and hop limit; of the BTH the byte with FECN and BECN.
  constexpr std::size_t kHead = kLrhBytes + kGrhBytes + kBthBytes;
  std::array<std::byte, kHead> head;
  CHECK(packet.size() >= kLrhBytes + kBthBytes);
  const bool has_grh = (packet[1] & std::byte{3}) == std::byte{3};
  if (!has_grh && packet.size() >= Crc32::kMultiplyBytesMin) {
    std::memcpy(head.data(), packet.data(), 16);
    head[0] |= std::byte{0xf0};
    head[kLrhBytes + 4] = std::byte{0xff};
    return ~Crc32::update_long(kBest, ~0u, head.data(), packet.data(), packet.size());
  }
  const std::size_t head_bytes = std::min(packet.size(), head.size());
  std::memcpy(head.data(), packet.data(), head_bytes);
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
