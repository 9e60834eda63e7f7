// What the cluster.toml of a node and that of its fabric must have in common, and how the fabric
// tells it: the values as text, each in a line, in an order that both know. In: settings; what the
// fabric said. Out: the first one that differs. Called by emu/wire/session.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "emu/base/setting.h"
#include "emu/base/units.h"

namespace emu {

struct Terms {
  NodeId node = 0;
  std::vector<Setting> settings;
};

// What differs first: "network.packet_size", "120" here, "40" there.
struct Disagreement {
  std::string key;
  std::string here;
  std::string there;
};

inline constexpr std::size_t kTermsBytes = 368;  // what a handshake has room for
using TermsText = std::array<char, kTermsBytes>;

// Zero-filled, and 0 at the end. Where there is no room for all values the longest are hashes of
// themselves.
TermsText write_terms(const std::vector<Setting>& settings);
// `name` is our node, which is number `there` in the fabric's file. Nothing: both files agree.
std::optional<Disagreement> disagreement(const Terms& here, std::string_view name, NodeId there,
                                         const TermsText& text);

}  // namespace emu
