#include "emu/wire/terms.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <span>

#include <fmt/core.h>

#include "emu/base/check.h"
#include "emu/wire/key.h"

namespace emu {
namespace {

constexpr char kHash = '#';  // no value of a cluster.toml begins so
constexpr std::size_t kHashChars = 17;

std::string hashed(std::string_view value) {
  const Key drawn = derive(Key{}, std::as_bytes(std::span(value)));
  std::uint64_t bits = 0;
  std::memcpy(&bits, drawn.data(), sizeof bits);
  return fmt::format("{}{:016x}", kHash, bits);
}

// It came from another host, if one with the cluster's key, and goes into logs.
std::string printable(std::string_view text) {
  std::string out(text);
  std::ranges::replace_if(
      out, [](char c) { return c < ' ' || c > '~'; }, '?');
  return out;
}

}  // namespace

TermsText write_terms(const std::vector<Setting>& settings) {
  std::vector<std::string> values;
  for (const Setting& setting : settings) values.push_back(setting.value);
  const auto bytes = [&values] {
    return std::accumulate(values.begin(), values.end(), std::size_t{1},
                           [](std::size_t sum, const auto& v) { return sum + v.size() + 1; });
  };
  while (bytes() > kTermsBytes) {
    auto longest = std::ranges::max_element(values, {}, &std::string::size);
    CHECK(longest->size() > kHashChars);  // too many of them, in one build
    *longest = hashed(*longest);
  }
  TermsText text{};
  std::size_t at = 0;
  for (const std::string& value : values) {
    std::memcpy(&text[at], value.data(), value.size());
    at += value.size();
    text[at++] = '\n';
  }
  return text;
}

std::optional<Disagreement> disagreement(const Terms& here, std::string_view name, NodeId there,
                                         const TermsText& text) {
  if (here.node != there) {
    return Disagreement{std::string(name), fmt::format("node {}", here.node),
                        fmt::format("node {}", there)};
  }
  std::string_view rest(text.data(), ::strnlen(text.data(), text.size()));
  for (const Setting& setting : here.settings) {
    const std::size_t end = std::min(rest.find('\n'), rest.size());
    const std::string_view told = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    const bool hash = told.starts_with(kHash);
    if (told == (hash ? hashed(setting.value) : setting.value)) continue;
    return Disagreement{setting.key, setting.value, hash ? "another" : printable(told)};
  }
  return std::nullopt;
}

}  // namespace emu
