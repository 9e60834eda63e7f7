#include "emu/config/config.h"

#include <algorithm>
#include <span>

#include <fmt/format.h>

#include "emu/config/fields.h"
#include "emu/config/rules.h"

namespace emu {
namespace {

using config::names_of;

// One key = value line per field, with the schema's words behind it.
class Printer {
 public:
  explicit Printer(const Config& config) : config_(config) {}

  void operator()(std::string_view section, std::string_view key, const auto& field) {
    if (key == "qos_sl2vl" && !config_.qos.qos_sl2vl_given) return;
    if (section != section_) {
      text_ += fmt::format("{}[{}]\n", section_.empty() ? "" : "\n", section);
      section_ = section;
    }
    line(key, print(field), config::find_rule(section, key)->description);
  }
  void line(std::string_view key, std::string_view value, std::string_view comment) {
    const std::string setting = fmt::format("{} = {}", key, value);
    text_ += comment.empty() ? setting + "\n" : fmt::format("{:<32}  # {}\n", setting, comment);
  }
  std::string text_;

 private:
  template <class T>
    requires std::is_enum_v<T>
  static std::string print(T value) {
    return fmt::format("\"{}\"", names_of(value)[static_cast<std::size_t>(value)]);
  }
  static std::string print(std::uint32_t value) { return fmt::format("{}", value); }
  static std::string print(std::uint64_t value) { return fmt::format("{}", value); }
  static std::string print(bool value) { return value ? "true" : "false"; }
  static std::string print(double value) {
    // A TOML float needs a point or an exponent; 17 digits bring the same double back.
    std::string text = fmt::format("{}", value);
    if (text.find_first_of(".e") == std::string::npos) text += ".0";
    return text;
  }
  static std::string print(const std::string& value) {
    std::string text = "\"";
    for (const char c : value) {
      if (c == '"' || c == '\\') {
        text += '\\';
        text += c;
      } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
        text += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
      } else {
        text += c;
      }
    }
    return text + '"';
  }
  static std::string print(std::uint16_t lanes) { return print(config::print_lanes(lanes)); }
  static std::string print(const TopologyChoice& topology) {
    return print(config::print_topology(topology));
  }
  static std::string print(const std::vector<VlWeight>& weights) {
    return print(config::print_weights(weights));
  }
  template <class T>
  static std::string print(const std::array<T, 16>& values) {
    std::string text = "[";
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (i != 0) text += ", ";
      if constexpr (std::is_enum_v<T>) {
        text += print(values[i]);
      } else {
        text += fmt::format("{}", values[i]);
      }
    }
    return text + "]";
  }

  const Config& config_;
  std::string_view section_;
};

// Mean number of links between routers on the way to another node, destinations uniform.
double mean_hops(const Config& config) {
  const std::size_t nodes = config.nodes.size();
  std::uint64_t hops = 0;
  for (std::size_t from = 0; from < nodes; ++from)
    for (std::size_t to = 0; to < nodes; ++to) hops += config.links_between(from, to);
  return nodes < 2 ? 0
                   : static_cast<double>(hops) / static_cast<double>(nodes) /
                         static_cast<double>(nodes - 1);
}

// Levels up to a common router, in a tree of leaves with `arity` nodes each.
std::uint32_t levels_up(std::size_t a, std::size_t b, std::uint32_t arity) {
  std::uint32_t up = 0;
  for (a /= arity, b /= arity; a != b; a /= arity, b /= arity) ++up;
  return up;
}

}  // namespace

Config::Config() {
  qos.sl_class.fill(TrafficClass::best_effort);
  qos.sl_class[1] = TrafficClass::real_time;
  qos.sl_class[15] = TrafficClass::control;
  qos.class_vls = {1u << kControlVl, 0x7ff0, 0x000f};
  for (std::uint32_t i = 0; i < network.nodes; ++i)
    nodes.push_back({.name = fmt::format("n{}", i)});
}

std::string Config::to_toml() const {
  Printer printer(*this);
  config::visit_fields(*this, printer);
  for (const NodeConfig& node : nodes) {
    printer.text_ += "\n[[node]]\n";
    printer.line("name", fmt::format("\"{}\"", node.name), "");
    if (!node.ip.empty()) printer.line("ip", fmt::format("\"{}\"", node.ip), "");
    if (node.links_to.empty()) continue;
    printer.line("links_to", fmt::format("\"{}\"", node.links_to), "");
  }
  return printer.text_;
}

namespace {

// LRH, GRH, BTH, DETH, immediate data, ICRC and VCRC.
constexpr std::uint32_t kDatagramOverheadBytes = 8 + 40 + 12 + 8 + 4 + 4 + 2;
constexpr std::uint32_t kDatagramBytesLeast = 256;

}  // namespace

std::uint32_t Config::buffer_bytes() const {
  return buffers_hold_packets() ? network.vc_buf_size * network.flit_bits / 8 : 0;
}

std::uint32_t Config::datagram_bytes() const {
  std::uint32_t bytes = hca.mtu;
  const std::uint32_t room = buffer_bytes();
  if (room == 0) return bytes;
  while (bytes > kDatagramBytesLeast && bytes + kDatagramOverheadBytes > room) bytes /= 2;
  return bytes;
}

std::uint32_t Config::buffer_flits_least() const {
  if (!buffers_hold_packets()) return 1;
  const std::uint32_t flit_bytes = network.flit_bits / 8;
  return (kDatagramBytesLeast + kDatagramOverheadBytes + flit_bytes - 1) / flit_bytes;
}

std::uint32_t Config::links_between(std::size_t a, std::size_t b) const {
  if (const std::string& given = nodes[a].links_to; b < given.size()) {
    const char c = given[b];
    return static_cast<std::uint32_t>(c <= '9' ? c - '0' : c - 'a' + 10);
  }
  const TopologyChoice& topology = network.topology;
  if (topology.kind == Topology::fat_tree) return 2 * levels_up(a, b, 4);
  if (topology.kind == Topology::tree) return 2 * levels_up(a, b, topology.sizes[0]);
  if (!topology.is_grid()) return 0;
  std::uint32_t links = 0;
  a /= network.nodes_per_router;
  b /= network.nodes_per_router;
  for (const std::uint32_t side : topology.sizes) {
    const auto x = static_cast<std::uint32_t>(a % side);
    const auto y = static_cast<std::uint32_t>(b % side);
    const std::uint32_t apart = x > y ? x - y : y - x;
    links += topology.kind == Topology::torus ? std::min(apart, side - apart) : apart;
    a /= side;
    b /= side;
  }
  return links;
}

std::uint32_t Config::quadrants() const {
  return network.topology.is_grid() && network.topology.sizes.size() == 2 ? 4 : 1;
}

std::uint32_t Config::quadrant(std::size_t a, std::size_t b) const {
  const TopologyChoice& topology = network.topology;
  if (quadrants() == 1) return 0;
  a /= network.nodes_per_router;
  b /= network.nodes_per_router;
  std::uint32_t quarter = 0;
  for (std::uint32_t dimension = 0; dimension < 2; ++dimension) {
    const auto side = topology.sizes[dimension];
    const auto ahead = static_cast<std::uint32_t>((b % side + side - a % side) % side);
    // Ahead on a mesh is to the right; on a torus, where the way to the right is the shorter one.
    const bool left = topology.kind == Topology::torus ? ahead > side / 2 : b % side < a % side;
    if (left) quarter |= 1U << dimension;
    a /= side;
    b /= side;
  }
  return quarter;
}

double Config::power_cap_w() const {
  if (controls.power_cap_w > 0) return controls.power_cap_w;
  const double hops = mean_hops(*this);
  const double flits_per_second = static_cast<double>(network.link_bps()) / network.flit_bits *
                                  controls.power_cap_load * network.nodes;
  const double flit_pj =
      energy.router_flit_pj() * (hops + 1) + energy.link_flit_pj() * hops + 2 * energy.hca_flit_pj;
  return watts(flits_per_second, flit_pj);
}

int Config::node_index(std::string_view name) const {
  const auto found = std::ranges::find(nodes, name, &NodeConfig::name);
  return found == nodes.end() ? -1 : static_cast<int>(found - nodes.begin());
}

std::string_view schema_json() { return config::schema_text(); }

std::string_view name_of(Topology value) {
  return names_of(value)[static_cast<std::size_t>(value)];
}
std::string_view name_of(Routing value) { return names_of(value)[static_cast<std::size_t>(value)]; }
std::string_view name_of(Scheduler value) {
  return names_of(value)[static_cast<std::size_t>(value)];
}
std::string_view name_of(Router value) { return names_of(value)[static_cast<std::size_t>(value)]; }
std::string_view name_of(Crossbar value) {
  return names_of(value)[static_cast<std::size_t>(value)];
}
std::string_view name_of(FlowControl value) {
  return names_of(value)[static_cast<std::size_t>(value)];
}
std::string_view name_of(Engine value) { return names_of(value)[static_cast<std::size_t>(value)]; }
std::string_view name_of(Counters value) {
  return names_of(value)[static_cast<std::size_t>(value)];
}
std::string_view name_of(Frame value) { return names_of(value)[static_cast<std::size_t>(value)]; }
std::string_view name_of(Congestion value) {
  return names_of(value)[static_cast<std::size_t>(value)];
}
Result<Congestion> congestion_of(std::string_view name) {
  const auto found = std::ranges::find(config::kCongestionNames, name);
  if (found == config::kCongestionNames.end()) {
    return fail("congestion: there is no scheme '{}'; one of {}", name,
                fmt::join(config::kCongestionNames, ", "));
  }
  return static_cast<Congestion>(found - config::kCongestionNames.begin());
}
std::string_view name_of(CompletionQueues value) {
  return names_of(value)[static_cast<std::size_t>(value)];
}
std::string_view name_of(PeakPower value) {
  return names_of(value)[static_cast<std::size_t>(value)];
}
std::string_view name_of(PowerBooking value) {
  return names_of(value)[static_cast<std::size_t>(value)];
}
std::string_view name_of(NoticeWay value) {
  return names_of(value)[static_cast<std::size_t>(value)];
}
std::string_view name_of(VctCounts value) {
  return names_of(value)[static_cast<std::size_t>(value)];
}
std::string_view name_of(Pointer value) { return names_of(value)[static_cast<std::size_t>(value)]; }
std::string_view name_of(LinkLayer value) {
  return names_of(value)[static_cast<std::size_t>(value)];
}
std::string_view name_of(HcaProcess value) {
  return names_of(value)[static_cast<std::size_t>(value)];
}
std::string_view name_of(AttachKind value) {
  return names_of(value)[static_cast<std::size_t>(value)];
}

}  // namespace emu
