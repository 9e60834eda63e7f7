#include "emu/config/rules.h"

#include <fmt/core.h>

#include <algorithm>
#include <numeric>

namespace emu::config {
namespace {

#include "emu/config/schema_table.inc"

// Levenshtein: insertions, deletions and replacements from one word to the other.
std::size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i + 1;
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row[b.size()];
}

}  // namespace

std::span<const Rule> rules() { return kRules; }

const Rule* find_rule(std::string_view section, std::string_view key) {
  const auto found = std::ranges::find_if(
      kRules, [&](const Rule& rule) { return rule.section == section && rule.key == key; });
  return found == std::end(kRules) ? nullptr : &*found;
}

std::string_view schema_text() { return kSchemaText; }

std::vector<std::string_view> choices_of(const Rule& rule) {
  std::vector<std::string_view> choices;
  std::string_view rest = rule.choices;
  while (!rest.empty()) {
    const std::size_t end = std::min(rest.find('\n'), rest.size());
    choices.push_back(rest.substr(0, end));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return choices;
}

std::string requirement(const Rule& rule) {
  const std::string count =
      rule.kind == Kind::array ? fmt::format("{} values, each ", rule.items_max) : "";
  if (!rule.choices.empty()) {
    std::string text = count + "one of ";
    for (const char c : rule.choices) text += c == '\n' ? std::string(", ") : std::string(1, c);
    return text;
  }
  switch (rule.kind == Kind::array ? rule.item_kind : rule.kind) {
    case Kind::boolean:
      return count + "true or false";
    case Kind::integer: {
      const std::string step =
          rule.multiple_of > 1 ? fmt::format(" in steps of {}", rule.multiple_of) : "";
      return fmt::format("{}a whole number, {} … {}{}", count,
                         static_cast<std::int64_t>(rule.minimum),
                         rule.maximum >= 9.2e18 ? std::int64_t{9223372036854775807}
                                                : static_cast<std::int64_t>(rule.maximum),
                         step);
    }
    case Kind::number:
      return fmt::format("{}{} … {}", count, rule.minimum, rule.maximum);
    case Kind::string:
    case Kind::array:
      break;
  }
  if (!rule.must.empty()) return std::string(rule.must);
  return fmt::format("a string of at most {} characters", rule.length_max);
}

std::string_view nearest(std::string_view wrong, std::span<const std::string_view> known) {
  std::string_view best;
  // Two slips in a short word, a third of a long one; more and the suggestion would be a guess.
  std::size_t best_distance = std::max<std::size_t>(2, wrong.size() / 3) + 1;
  if (wrong.size() > 64) return best;
  for (const std::string_view name : known) {
    const std::size_t d = distance(wrong, name);
    if (d < best_distance) {
      best = name;
      best_distance = d;
    }
  }
  return best;
}

std::vector<std::string_view> keys_of(std::string_view section) {
  std::vector<std::string_view> keys;
  for (const Rule& rule : kRules) {
    if (rule.section == section) keys.push_back(rule.key);
  }
  return keys;
}

std::vector<std::string_view> section_names() {
  std::vector<std::string_view> names;
  for (const Rule& rule : kRules) {
    if (names.empty() || names.back() != rule.section) names.push_back(rule.section);
  }
  return names;
}

}  // namespace emu::config
