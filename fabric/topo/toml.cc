// Graphs in TOML: switches, nodes and links as lists of tables (file.h).
#include <toml++/toml.h>

#include <charconv>
#include <map>
#include <optional>

#include "fabric/topo/file.h"

namespace fabric {

namespace {

class Builder {
 public:
  explicit Builder(std::string_view source) : source_(source) {}

  emu::Result<Graph> build(const toml::table& document) {
    for (const auto& [name, value] : document) {
      if (name != "switch" && name != "node" && name != "link") {
        return wrong(value, fmt::format("{}: unknown; must be switch, node or link", name.str()));
      }
      const auto* tables = value.as_array();
      if (tables == nullptr || !tables->is_array_of_tables()) {
        return wrong(value, fmt::format("{0}: must be [[{0}]] tables", name.str()));
      }
    }
    using Add = emu::Result<void> (Builder::*)(const toml::table&);
    constexpr std::pair<const char*, Add> kKinds[] = {{"switch", &Builder::add_switch},
                                                      {"node", &Builder::add_node},
                                                      {"link", &Builder::add_link}};
    for (const auto& [name, add] : kKinds) {
      const toml::array* tables = document[name].as_array();
      if (tables == nullptr) continue;
      for (const toml::node& table : *tables) {
        if (auto added = (this->*add)(*table.as_table()); !added)
          return std::unexpected(added.error());
      }
    }
    if (auto whole = check_graph(graph_); !whole) {
      return emu::fail("{}: {}", source_, whole.error().message);
    }
    return std::move(graph_);
  }

 private:
  std::unexpected<emu::Error> wrong(const toml::node& where, std::string_view what) const {
    return emu::fail("{}:{}: {}", source_, where.source().begin.line, what);
  }

  emu::Result<void> add_switch(const toml::table& table) {
    const auto name = table["name"].value<std::string>();
    const auto ports = table["ports"].value<std::int64_t>();
    if (!name || name->empty() || name->size() > 64 || name->find(':') != std::string::npos) {
      return wrong(table, "switch.name: must be 1 to 64 characters, none of them ':'");
    }
    if (!ports || *ports < 1 || *ports > kRouterPortsMax) {
      return wrong(table, fmt::format("switch.ports: must be 1 to {}", kRouterPortsMax));
    }
    if (graph_.routers.size() == kRoutersMax) {
      return wrong(table, fmt::format("more than {} switches", kRoutersMax));
    }
    const auto id = static_cast<emu::RouterId>(graph_.routers.size());
    if (!routers_.emplace(*name, id).second) {
      return wrong(table, fmt::format("switch.name = \"{}\": two switches have it", *name));
    }
    graph_.add_router(*name, static_cast<int>(*ports));
    return {};
  }

  // "s0:4": a port that leads nowhere yet.
  emu::Result<NodePlace> free_port(const toml::table& table, std::optional<std::string> text) {
    if (!text) return wrong(table, "must name a port, such as \"s0:4\"");
    const std::size_t colon = text->rfind(':');
    int port = -1;
    if (colon != std::string::npos) {
      const char* end = text->data() + text->size();
      if (std::from_chars(text->data() + colon + 1, end, port).ptr != end) port = -1;
    }
    const auto router = routers_.find(text->substr(0, colon));
    const std::string shown = text->substr(0, 80);
    if (router == routers_.end() || port < 0 ||
        std::cmp_greater_equal(port, graph_.routers[router->second].size())) {
      return wrong(table, fmt::format("\"{}\" is no port of a switch", shown));
    }
    const PortEnd& end = graph_.routers[router->second][static_cast<std::size_t>(port)];
    if (end.node != kNoNode || end.router != kNobody) {
      return wrong(table, fmt::format("\"{}\" leads somewhere already", shown));
    }
    return NodePlace{router->second, static_cast<emu::PortId>(port)};
  }

  emu::Result<void> add_node(const toml::table& table) {
    const auto at = free_port(table, table["at"].value<std::string>());
    if (!at) return std::unexpected(at.error());
    if (graph_.nodes.size() == kGraphNodesMax) {
      return wrong(table, fmt::format("more than {} nodes", kGraphNodesMax));
    }
    graph_.add_node(at->router, at->port);
    return {};
  }

  emu::Result<void> add_link(const toml::table& table) {
    const toml::array* ends = table["ends"].as_array();
    if (ends == nullptr || ends->size() != 2) {
      return wrong(table, "link.ends: must be two ports, such as [\"s0:4\", \"s1:0\"]");
    }
    const auto a = free_port(table, (*ends)[0].value<std::string>());
    if (!a) return std::unexpected(a.error());
    const auto b = free_port(table, (*ends)[1].value<std::string>());
    if (!b) return std::unexpected(b.error());
    if (a->router == b->router && a->port == b->port) {
      return wrong(table, "link.ends: a port is linked to itself");
    }
    graph_.connect(a->router, a->port, b->router, b->port);
    return {};
  }

  std::string source_;
  Graph graph_;
  std::map<std::string, emu::RouterId, std::less<>> routers_;
};

}  // namespace

emu::Result<Graph> read_toml_graph(std::string_view text, std::string_view source) {
  try {
    const toml::table document = toml::parse(text, source);
    return Builder(source).build(document);
  } catch (const toml::parse_error& error) {
    std::string what(error.description());
    for (char& c : what)
      if (static_cast<unsigned char>(c) < 0x20) c = ' ';
    return emu::fail("{}:{}: not TOML: {}", source, error.source().begin.line, what);
  }
}

}  // namespace fabric
