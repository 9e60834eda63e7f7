// ibnetdiscover's text. A block begins with a Switch, Ca or Rt line and lists the linked ports:
//   Switch  24 "S-0002c9020040f160"   # "MT47396 ..." base port 0 lid 6 lmc 0
//   [1]     "H-0002c9020020e78c"[1](2c9020020e78d)   # "host HCA-1" lid 2 4xDDR
//   Ca      2 "H-0002c9020020e78c"    # "host HCA-1"
//   [1](2c9020020e78d)   "S-0002c9020040f160"[1]     # lid 2 lmc 0 "..." lid 6 4xDDR
// Before a block stand lines such as vendid=0x2c9, before a group Chassis lines. Switches that
// reduce in the network (SHARP) have an adapter of their own, an Aggregation Node on the last port:
// it is no host, and is left out.
#include "fabric/topo/file.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <set>
#include <utility>
#include <vector>

namespace fabric {

namespace {

struct End {
  std::string device;
  int port = 0;  // as in the file: from 1
  auto operator<=>(const End&) const = default;
};

struct Device {
  bool is_switch = false;
  int ports = 0;  // may be more than a router has, as long as no host is behind them
};

constexpr int kFilePortsMax = 254;  // a port number has a byte, 0 and 255 mean others

bool is_aggregation_node(std::string_view line) {
  return line.find("Aggregation Node\"") != std::string_view::npos;
}

// What the lines said, before it becomes a graph.
struct Fabric {
  std::map<std::string, Device, std::less<>> devices;
  std::vector<std::string> order;            // of devices, as they came
  std::map<End, std::pair<End, int>> links;  // both ways, with the line that told it
};

void skip_blanks(std::string_view& text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
}

bool take(std::string_view& text, std::string_view word) {
  if (!text.starts_with(word)) return false;
  text.remove_prefix(word.size());
  return true;
}

bool take_number(std::string_view& text, int& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || value < 0) return false;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return true;
}

bool take_quoted(std::string_view& text, std::string& value) {
  if (!take(text, "\"")) return false;
  const std::size_t end = text.find('"');
  if (end == std::string_view::npos || end == 0 || end > 64) return false;
  value = text.substr(0, end);
  text.remove_prefix(end + 1);
  return true;
}

// [7], and behind it [ext 3] of a chassis' outer port or (guid).
bool take_port(std::string_view& text, int& port) {
  if (!take(text, "[") || !take_number(text, port) || !take(text, "]")) return false;
  for (;;) {
    std::string_view rest = text;
    skip_blanks(rest);
    if (rest.starts_with("[ext") || rest.starts_with("(")) {
      const std::size_t end = rest.find(rest.front() == '(' ? ')' : ']');
      if (end == std::string_view::npos) return false;
      text = rest.substr(end + 1);
      continue;
    }
    return true;
  }
}

class Reader {
 public:
  explicit Reader(std::string_view source) : source_(source) {}

  emu::Result<void> line(std::string_view text, int number) {
    number_ = number;
    skip_blanks(text);
    while (!text.empty() && (text.back() == '\r' || text.back() == ' ')) text.remove_suffix(1);
    if (text.empty() || text.starts_with('#')) return {};
    if (text.starts_with('[')) return port_line(text);
    if (take(text, "Switch")) return device_line(text, true);
    if (take(text, "Ca") || take(text, "Rt")) return device_line(text, false);
    if (text.starts_with("Chassis") || text.starts_with("Non-Chassis")) return {};
    const std::size_t equals = text.find('=');
    if (equals != std::string_view::npos && text.find(' ') > equals) return {};  // vendid=0x2c9
    return wrong("neither a device, a port nor a comment");
  }

  emu::Result<Graph> graph();

 private:
  std::unexpected<emu::Error> wrong(std::string_view what) const {
    return emu::fail("{}:{}: {}", source_, number_, what);
  }

  emu::Result<void> device_line(std::string_view text, bool is_switch) {
    int ports = 0;
    std::string id;
    skip_blanks(text);
    const bool counted = take_number(text, ports);
    skip_blanks(text);
    if (!counted || !take_quoted(text, id)) {
      return wrong("a device has a number of ports and a name in quotes");
    }
    if (ports < 1 || ports > kFilePortsMax) {
      return wrong(fmt::format("{} ports; 1 to {} are possible", ports, kFilePortsMax));
    }
    is_left_out_ = !is_switch && is_aggregation_node(text);
    if (is_left_out_) return {};
    if (!fabric_.devices.emplace(id, Device{is_switch, ports}).second) {
      return wrong(fmt::format("\"{}\" was described before", id));
    }
    fabric_.order.push_back(id);
    device_ = id;
    return {};
  }

  emu::Result<void> port_line(std::string_view text) {
    if (is_left_out_ || is_aggregation_node(text)) return {};
    if (device_.empty()) return wrong("a port before any device");
    End here{device_, 0};
    End there;
    const bool port = take_port(text, here.port);
    skip_blanks(text);
    if (!port || !take_quoted(text, there.device) || !take_port(text, there.port)) {
      return wrong("a port line is [port] \"device\"[port]");
    }
    const int most = fabric_.devices.find(device_)->second.ports;
    if (here.port < 1 || here.port > most) {
      return wrong(fmt::format("port {} of a device that has {}", here.port, most));
    }
    for (const int linked : {here.port, there.port}) {
      if (linked < 1 || linked > kRouterPortsMax) {
        return wrong(fmt::format("port {}; 1 to {} are possible", linked, kRouterPortsMax));
      }
    }
    if (here == there) return wrong("a port is linked to itself");
    for (const auto& [from, to] : {std::pair(here, there), std::pair(there, here)}) {
      const auto [at, fresh] = fabric_.links.try_emplace(from, to, number_);
      if (!fresh && at->second.first != to) {
        return wrong(fmt::format("\"{}\" port {} was linked to \"{}\" port {} in line {}",
                                 from.device, from.port, at->second.first.device,
                                 at->second.first.port, at->second.second));
      }
    }
    return {};
  }

  std::string source_;
  int number_ = 0;
  std::string device_;  // of the block
  bool is_left_out_ = false;
  Fabric fabric_;
};

emu::Result<Graph> Reader::graph() {
  Graph graph;
  std::map<std::string, emu::RouterId, std::less<>> routers;
  for (const std::string& id : fabric_.order) {
    const Device& device = fabric_.devices[id];
    if (!device.is_switch) continue;
    if (routers.size() == kRoutersMax) {
      return emu::fail("{}: more than {} switches", source_, kRoutersMax);
    }
    routers[id] = graph.add_router(id, std::min(device.ports, kRouterPortsMax));
  }
  // Adapters that only a switch's lines name come last.
  std::vector<std::string> adapters;
  for (const std::string& id : fabric_.order)
    if (!fabric_.devices[id].is_switch) adapters.push_back(id);
  std::set<std::string, std::less<>> named(adapters.begin(), adapters.end());
  for (const auto& [from, to] : fabric_.links) {
    number_ = to.second;
    const auto router = routers.find(from.device);
    if (router == routers.end()) {
      if (!routers.contains(to.first.device)) {
        return wrong("a link has no switch at either end");
      }
      if (named.contains(from.device)) continue;
      if (from.device.starts_with("S-")) {  // nothing but its name tells what it is
        return wrong(fmt::format("switch \"{}\" is described nowhere", from.device));
      }
      named.insert(from.device);
      adapters.push_back(from.device);
      continue;
    }
    if (std::cmp_greater(from.port, graph.routers[router->second].size())) {
      return wrong(fmt::format("\"{}\" has no port {}", from.device, from.port));
    }
    const auto peer = routers.find(to.first.device);
    if (peer == routers.end() || to.first < from) continue;
    if (std::cmp_greater(to.first.port, graph.routers[peer->second].size())) {
      return wrong(fmt::format("\"{}\" has no port {}", to.first.device, to.first.port));
    }
    graph.connect(router->second, from.port - 1, peer->second, to.first.port - 1);
  }
  for (const std::string& id : adapters) {
    for (auto link = fabric_.links.lower_bound({id, 0});
         link != fabric_.links.end() && link->first.device == id; ++link) {
      const End& at = link->second.first;
      if (graph.nodes.size() == kGraphNodesMax) {
        return emu::fail("{}: more than {} nodes", source_, kGraphNodesMax);
      }
      graph.add_node(routers.find(at.device)->second, at.port - 1);
    }
  }
  if (auto whole = check_graph(graph); !whole) {
    return emu::fail("{}: {}", source_, whole.error().message);
  }
  return graph;
}

}  // namespace

emu::Result<Graph> read_ibnetdiscover(std::string_view text, std::string_view source) {
  Reader reader(source);
  for (int number = 1; !text.empty(); ++number) {
    const std::size_t end = text.find('\n');
    if (auto read = reader.line(text.substr(0, end), number); !read) {
      return std::unexpected(read.error());
    }
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
  return reader.graph();
}

emu::Result<Graph> read_graph(std::string_view text, std::string_view source) {
  if (text.empty()) return emu::fail("{}: is empty or cannot be read", source);
  if (text.size() > kGraphBytesMax) {
    return emu::fail("{}: {} bytes, must be at most {}", source, text.size(), kGraphBytesMax);
  }
  return source.ends_with(".toml") ? read_toml_graph(text, source)
                                   : read_ibnetdiscover(text, source);
}

}  // namespace fabric
