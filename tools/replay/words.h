// Lines of the out-of-band exchange and of a plan: "verb key=value key=value". In comes text nobody
// vouches for, out go words that are looked up by key. Pure.
#pragma once

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "emu/base/result.h"

namespace tools {

// A whole number of at most `max` and nothing else.
inline std::optional<std::uint64_t> parse_number(std::string_view text, std::uint64_t max) {
  std::uint64_t parsed = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, parsed);
  if (error != std::errc{} || stop != end || parsed > max) return std::nullopt;
  return parsed;
}

class Words {
 public:
  // Splits at any of `separators`; a word without '=' before all others is the verb.
  static Words parse(std::string_view line, std::string_view separators) {
    Words words;
    while (!line.empty() && words.pairs_.size() < kPairsMax) {
      const std::size_t end = std::min(line.find_first_of(separators), line.size());
      const std::string_view word = trimmed(line.substr(0, end));
      line.remove_prefix(std::min(end + 1, line.size()));
      if (word.empty()) continue;
      const std::size_t equals = word.find('=');
      if (equals != std::string_view::npos) {
        words.pairs_.emplace_back(word.substr(0, equals), word.substr(equals + 1));
      } else if (words.verb_.empty() && words.pairs_.empty()) {
        words.verb_ = word;
      } else {
        words.pairs_.emplace_back(word, "");
      }
    }
    return words;
  }

  const std::string& verb() const { return verb_; }
  const std::vector<std::pair<std::string, std::string>>& pairs() const { return pairs_; }
  bool has(std::string_view key) const { return find(key) != nullptr; }
  std::string text(std::string_view key, std::string_view otherwise = "") const {
    const std::string* value = find(key);
    return std::string(value != nullptr ? std::string_view(*value) : otherwise);
  }
  // A number of at most `max`; nothing if the key is missing or its value is anything else.
  std::optional<std::uint64_t> number(std::string_view key,
                                      std::uint64_t max = ~std::uint64_t{0}) const {
    const std::string* value = find(key);
    return value == nullptr ? std::nullopt : parse_number(*value, max);
  }

 private:
  static constexpr std::size_t kPairsMax = 32;
  static std::string_view trimmed(std::string_view word) {
    constexpr std::string_view kBlank = " \t\r";
    const std::size_t from = word.find_first_not_of(kBlank);
    if (from == std::string_view::npos) return {};
    return word.substr(from, word.find_last_not_of(kBlank) + 1 - from);
  }
  const std::string* find(std::string_view key) const {
    for (const auto& [name, value] : pairs_) {
      if (name == key) return &value;
    }
    return nullptr;
  }

  std::string verb_;
  std::vector<std::pair<std::string, std::string>> pairs_;
};

}  // namespace tools
