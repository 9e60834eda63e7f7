// From TOML text to a Config. The only file that knows toml++.
#include <regex.h>
#include <toml++/toml.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>

#include "emu/base/check.h"
#include "emu/config/fields.h"
#include "emu/config/rules.h"

namespace emu {
namespace {

using config::Kind;
using config::Rule;

inline constexpr std::size_t kConfigBytesMax = 1 << 20;

// Control characters would break the one line, or end it.
std::string one_line(std::string text) {
  std::ranges::replace_if(
      text, [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }, ' ');
  return text;
}

// A value as a user wrote it, short enough for one line.
std::string shown(const toml::node& node) {
  std::ostringstream out;
  if (const auto* text = node.as_string()) {
    out << '"' << text->get() << '"';
  } else if (const auto* array = node.as_array()) {
    out << "[" << array->size() << " values]";
  } else if (node.is_table()) {
    out << "{table}";
  } else {
    node.visit([&](const auto& value) { out << value; });
  }
  std::string line = one_line(out.str());
  if (line.size() > 60) line = line.substr(0, 57) + "...";
  return line;
}

bool number_fits(const Rule& rule, double value) {
  return value >= rule.minimum && value <= rule.maximum;  // false for nan
}

// The schema's patterns hold for a whole value, and none has a line in it.
bool matches(std::string_view pattern, const std::string& value) {
  if (value.find_first_of(std::string_view("\0\n\r", 3)) != std::string::npos) return false;
  CHECK(pattern.starts_with('^') && pattern.ends_with('$'));
  regex_t compiled;
  CHECK(::regcomp(&compiled, std::string(pattern).c_str(), REG_EXTENDED | REG_NOSUB) == 0);
  const bool matched = ::regexec(&compiled, value.c_str(), 0, nullptr, 0) == 0;
  ::regfree(&compiled);
  return matched;
}

bool is_choice(const Rule& rule, std::string_view text) {
  return rule.choices.empty() || std::ranges::count(config::choices_of(rule), text) != 0;
}

bool scalar_fits(const Rule& rule, Kind kind, const toml::node& node) {
  switch (kind) {
    case Kind::boolean:
      return node.is_boolean();
    case Kind::integer: {
      const auto* value = node.as_integer();
      if (value == nullptr) return false;
      if (!rule.choices.empty()) return is_choice(rule, fmt::format("{}", value->get()));
      return number_fits(rule, static_cast<double>(value->get())) &&
             value->get() % rule.multiple_of == 0;
    }
    case Kind::number: {
      const auto value = node.value<double>();
      return node.is_number() && value && number_fits(rule, *value);
    }
    case Kind::string: {
      const auto* value = node.as_string();
      if (value == nullptr || !is_choice(rule, value->get())) return false;
      // The length comes first: it bounds what the regular expression has to chew.
      if (rule.length_max > 0 && std::cmp_greater(value->get().size(), rule.length_max)) {
        return false;
      }
      return rule.pattern.empty() || matches(rule.pattern, value->get());
    }
    case Kind::array:
      break;
  }
  return false;
}

bool fits(const Rule& rule, const toml::node& node) {
  if (rule.kind != Kind::array) return scalar_fits(rule, rule.kind, node);
  const auto* array = node.as_array();
  if (array == nullptr || std::cmp_less(array->size(), rule.items_min) ||
      std::cmp_greater(array->size(), rule.items_max)) {
    return false;
  }
  return std::ranges::all_of(
      *array, [&](const toml::node& item) { return scalar_fits(rule, rule.item_kind, item); });
}

// Puts a value that fits its rule into the field of its key. `good` stays true unless the text
// inside the string is wrong (a lane that does not exist).
struct Assigner {
  std::string_view section;
  std::string_view key;
  const toml::node& node;
  bool good = true;
  bool found = false;

  void operator()(std::string_view its_section, std::string_view its_key, auto& field) {
    if (its_section != section || its_key != key) return;
    found = true;
    assign(field);
  }
  void assign(bool& field) { field = node.as_boolean()->get(); }
  void assign(std::uint32_t& field) {
    field = static_cast<std::uint32_t>(node.as_integer()->get());
  }
  void assign(std::uint64_t& field) {
    field = static_cast<std::uint64_t>(node.as_integer()->get());
  }
  void assign(double& field) { field = *node.value<double>(); }
  void assign(std::string& field) { field = node.as_string()->get(); }
  void assign(std::uint16_t& lanes) {
    lanes = config::parse_lanes(node.as_string()->get());
    good = lanes != 0;
  }
  void assign(TopologyChoice& field) {
    good = config::parse_topology(node.as_string()->get(), field);
  }
  void assign(std::vector<VlWeight>& field) {
    good = config::parse_weights(node.as_string()->get(), field);
  }
  template <class T>
    requires std::is_enum_v<T>
  static void assign_name(T& field, std::string_view name) {
    const auto names = config::names_of(T{});
    field = static_cast<T>(std::ranges::find(names, name) - names.begin());
  }
  template <class T>
    requires std::is_enum_v<T>
  void assign(T& field) {
    assign_name(field, node.as_string()->get());
  }
  template <class T>
  void assign(std::array<T, 16>& field) {
    for (std::size_t i = 0; i < field.size(); ++i) {
      const toml::node& item = (*node.as_array())[i];
      if constexpr (std::is_enum_v<T>) {
        assign_name(field[i], item.as_string()->get());
      } else {
        field[i] = static_cast<T>(item.as_integer()->get());
      }
    }
  }
};

// Walks one document. Messages begin with "file:line: ".
class Loader {
 public:
  Loader(Config& config, std::string_view source) : config_(config), source_(source) {}

  Result<void> load(const toml::table& document) {
    for (const auto& [name, node] : document) {
      const std::string_view section = name.str();
      if (section == "node") {
        if (auto nodes = load_nodes(node); !nodes) return nodes;
        continue;
      }
      if (config::keys_of(section).empty())
        return unknown(node, "", section, config::section_names());
      const auto* table = node.as_table();
      if (table == nullptr)
        return fail("{}: {}: must be a table, [{}]", place(node), section, section);
      if (auto loaded = load_section(section, *table); !loaded) return loaded;
    }
    auto resolved = config::resolve(config_, nodes_given_, !config_.nodes.empty(), lanes_given_);
    if (!resolved) return fail("{}: {}", source_, resolved.error().message);
    return {};
  }

 private:
  std::string place(const toml::node& node) const {
    return fmt::format("{}:{}", source_, node.source().begin.line);
  }
  Result<void> unknown(const toml::node& node, std::string_view section, std::string_view key,
                       const std::vector<std::string_view>& known) const {
    const std::string_view near = config::nearest(key, known);
    const std::string shown_key = one_line(std::string(key.substr(0, 60)));
    const std::string hint = near.empty() ? "" : fmt::format(", did you mean {}?", near);
    return fail("{}: {}{}{}: unknown {}{}", place(node), section, section.empty() ? "" : ".",
                shown_key, section.empty() ? "section" : "key", hint);
  }
  Result<void> wrong(const toml::node& node, const Rule& rule) const {
    return fail("{}: {}.{} = {}: must be {}", place(node), rule.section, rule.key, shown(node),
                config::requirement(rule));
  }

  Result<const Rule*> checked_rule(std::string_view section, std::string_view key,
                                   const toml::node& value) const {
    const Rule* rule = config::find_rule(section, key);
    if (rule == nullptr) {
      return std::unexpected(unknown(value, section, key, config::keys_of(section)).error());
    }
    if (!fits(*rule, value)) return std::unexpected(wrong(value, *rule).error());
    return rule;
  }

  Result<void> load_section(std::string_view section, const toml::table& table) {
    for (const auto& [name, value] : table) {
      const std::string_view key = name.str();
      const auto rule = checked_rule(section, key, value);
      if (!rule) return std::unexpected(rule.error());
      Assigner assigner{section, key, value};
      config::visit_fields(config_, assigner);
      if (!assigner.found) return unknown(value, section, key, {});
      if (!assigner.good) return wrong(value, **rule);
      nodes_given_ |= section == "network" && key == "nodes";
      lanes_given_ |= key.starts_with("vls_");
      config_.qos.qos_sl2vl_given |= key == "qos_sl2vl";
    }
    return {};
  }

  Result<void> load_nodes(const toml::node& node) {
    const auto* array = node.as_array();
    if (array == nullptr || !array->is_array_of_tables()) {
      return fail("{}: node = {}: must be [[node]] tables", place(node), shown(node));
    }
    if (array->size() > kNodesVirtualMax) {
      return fail("{}: node: {} tables, must be 1 … {}", place(node), array->size(),
                  kNodesVirtualMax);
    }
    for (const toml::node& item : *array) {
      NodeConfig& entry = config_.nodes.emplace_back();
      for (const auto& [name, value] : *item.as_table()) {
        const auto rule = checked_rule("node", name.str(), value);
        if (!rule) return std::unexpected(rule.error());
        Assigner assigner{"node", name.str(), value};
        config::visit_node_fields(entry, assigner);
      }
      if (entry.name.empty()) return fail("{}: node.name is missing", place(item));
    }
    return {};
  }

  Config& config_;
  std::string_view source_;
  bool nodes_given_ = false;
  bool lanes_given_ = false;
};

}  // namespace

Result<Config> Config::parse(std::string_view toml, std::string_view source) {
  if (toml.size() > kConfigBytesMax) {
    return fail("{}: has more than {} bytes, as many as a cluster file may have", source,
                kConfigBytesMax);
  }
  Config config;
  config.nodes.clear();
  try {
    const toml::table document = toml::parse(toml, source);
    if (auto loaded = Loader(config, source).load(document); !loaded) {
      return std::unexpected(loaded.error());
    }
  } catch (const toml::parse_error& error) {
    return fail("{}:{}: not TOML: {}", source, error.source().begin.line,
                one_line(std::string(error.description())));
  }
  return config;
}

Result<Config> Config::load(const std::string& path) {
  // Only a plain file: a FIFO would block, a device may never end.
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) return fail("{} is not a file", path);
  std::ifstream file(path, std::ios::binary);
  if (!file) return fail("cannot read {}", path);
  std::string text(kConfigBytesMax + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(file.gcount()));
  if (file.bad()) return fail("cannot read {}", path);
  const std::size_t slash = path.rfind('/');
  auto config = parse(text, slash == std::string::npos ? path : path.substr(slash + 1));
  if (config && !config->attach.key_file.empty()) {
    // Beside the file: daemons are started from any directory.
    const std::filesystem::path folder = std::filesystem::absolute(path).parent_path();
    config->attach.key_file = (folder / config->attach.key_file).lexically_normal();
  }
  if (config && config->network.nodes > kNodesMax) {
    return fail("network.nodes = {}: must be 1 … {} in a live cluster", config->network.nodes,
                kNodesMax);
  }
  return config;
}

}  // namespace emu
