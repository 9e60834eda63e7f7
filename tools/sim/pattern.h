// Where a message goes: the destination patterns of the papers. In: the sender, and a generator for
// patterns that draw. Out: a node that is not the sender, or the sender where the pattern maps a
// node to itself (bit reversal of a palindrome): such a node is silent.
#pragma once

#include <bit>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "emu/base/prng.h"
#include "emu/base/units.h"
#include "tools/sim/draw.h"

namespace tools {

enum class PatternKind : std::uint8_t {
  uniform,
  bit_reversal,
  shuffle,      // perfect shuffle: address bits rotated left
  hot_spot,     // `hot_share` to node 0, else uniform
  permutation,  // one partner each, drawn at the start
  pairs,        // the same, and each is his partner's; of an odd number one is silent
};
inline constexpr std::string_view kPatternNames[] = {"uniform",  "bit_reversal", "shuffle",
                                                     "hot_spot", "permutation",  "pairs"};

class Pattern {
 public:
  // Patterns on address bits need a power of two of nodes; `fits` tells.
  static bool fits(PatternKind kind, int nodes) {
    const bool bits = kind == PatternKind::bit_reversal || kind == PatternKind::shuffle;
    return nodes >= 2 && (!bits || std::has_single_bit(static_cast<unsigned>(nodes)));
  }
  Pattern(PatternKind kind, int nodes, double hot_share, std::uint64_t seed)
      : kind_(kind), nodes_(static_cast<std::uint32_t>(nodes)), hot_share_(hot_share) {
    if (kind != PatternKind::permutation && kind != PatternKind::pairs) return;
    emu::Prng prng(seed);
    // A cyclic shift of a random order: nobody is his own partner.
    std::vector<emu::NodeId> order;
    for (std::uint32_t n = 0; n < nodes_; ++n) order.push_back(static_cast<emu::NodeId>(n));
    tools::shuffle(prng, order);
    partner_.resize(nodes_);
    for (std::uint32_t n = 0; n < nodes_; ++n) {
      const std::uint32_t pair = n + 1 == nodes_ && n % 2 == 0 ? n : n ^ 1U;
      partner_[order[n]] = order[kind == PatternKind::pairs ? pair : (n + 1) % nodes_];
    }
  }

  emu::NodeId destination(emu::NodeId source, emu::Prng& prng) const {
    const unsigned bits = std::bit_width(nodes_) - 1U;
    switch (kind_) {
      case PatternKind::bit_reversal: {
        unsigned reversed = 0;
        for (unsigned b = 0; b < bits; ++b) reversed |= ((source >> b) & 1U) << (bits - 1 - b);
        return static_cast<emu::NodeId>(reversed);
      }
      case PatternKind::shuffle:
        return static_cast<emu::NodeId>(((source << 1) | (source >> (bits - 1))) & (nodes_ - 1));
      case PatternKind::hot_spot:
        if (source != 0 && prng.uniform() < hot_share_) return 0;
        break;
      case PatternKind::permutation:
      case PatternKind::pairs:
        return partner_[source];
      case PatternKind::uniform:
        break;
    }
    const auto other = prng.below(nodes_ - 1);
    return static_cast<emu::NodeId>(other >= source ? other + 1 : other);
  }

 private:
  PatternKind kind_;
  std::uint32_t nodes_;
  double hot_share_;
  std::vector<emu::NodeId> partner_;
};

}  // namespace tools
