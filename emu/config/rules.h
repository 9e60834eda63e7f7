// The rules of schema.json as a flat table, made at build time by embed_schema.py. Private to this
// room.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace emu::config {

enum class Kind : std::uint8_t { boolean, integer, number, string, array };

struct Rule {
  std::string_view section;
  std::string_view key;
  Kind kind;
  Kind item_kind;  // arrays
  double minimum;  // integer, number; of an array's items
  double maximum;
  int multiple_of;
  int items_min;  // arrays
  int items_max;
  int length_max;             // strings; 0: none
  std::string_view pattern;   // strings; empty: none
  std::string_view must;      // what the pattern means, for messages
  std::string_view choices;   // separated by newlines; empty: any
  std::string_view fallback;  // JSON text of the default; empty: none
  std::string_view description;
};

std::span<const Rule> rules();
const Rule* find_rule(std::string_view section, std::string_view key);
std::string_view schema_text();

// "a whole number, 1 … 100000", "one of flit, cell": what a value must be.
std::string requirement(const Rule& rule);
// The known name nearest to `wrong`, empty if none is near.
std::string_view nearest(std::string_view wrong, std::span<const std::string_view> known);
std::vector<std::string_view> keys_of(std::string_view section);
std::vector<std::string_view> section_names();
std::vector<std::string_view> choices_of(const Rule& rule);

}  // namespace emu::config
