// Which router port leads where: routers, links, and where the HCAs sit. Built once by a generator
// (shape.h) or from a file (file.h); read by fabric/route, fabric/link and fabric/admit.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "emu/base/result.h"
#include "emu/base/units.h"

namespace fabric {

// Limits of a graph. What an engine can run is its own affair: fabric/router says so.
inline constexpr int kRouterPortsMax = 64;
inline constexpr int kRoutersMax = 4096;
inline constexpr int kGraphNodesMax = 16384;
inline constexpr emu::NodeId kNoNode = 0xffff;
inline constexpr emu::RouterId kNobody = 0xffff;

// What a port leads to: an HCA, another router, or nothing.
struct PortEnd {
  emu::NodeId node = kNoNode;
  emu::RouterId router = kNobody;
  emu::PortId port = 0;  // of that router
};

struct NodePlace {
  emu::RouterId router;
  emu::PortId port;
};

// Coordinates of a mesh or torus: router = x + sides[0] * (y + sides[1] * (z ...)). Ports: first
// the HCAs, then for each dimension the `links` links up, then the `links` links down.
struct Grid {
  std::vector<int> sides;  // empty: no grid
  int nodes_per_router = 1;
  int links = 1;  // between two neighbours; more than one: a fat mesh
  bool wraps = false;

  int dimensions() const { return static_cast<int>(sides.size()); }
  // With the number of dimensions: how many ports a router has.
  int port(int dimension, bool down, int link) const {
    int first = nodes_per_router;
    for (int d = 0; d < dimension; ++d) first += (one_way(d) ? 1 : 2) * links;
    const bool second = down && dimension < dimensions() && !one_way(dimension);
    return first + (second ? links : 0) + link;
  }
  // In a fat mesh a router has a neighbour either up or down a side of two: the links take the same
  // ports, so that the 2 x 2 fat mesh of the paper is one of 8-port routers with 4 nodes each.
  bool one_way(int dimension) const {
    return links > 1 && !wraps && sides[static_cast<std::size_t>(dimension)] == 2;
  }
  int coordinate(int router, int dimension) const {
    for (int d = 0; d < dimension; ++d) router /= sides[static_cast<std::size_t>(d)];
    return router % sides[static_cast<std::size_t>(dimension)];
  }
};

struct Graph {
  std::vector<std::vector<PortEnd>> routers;  // [router][port]
  std::vector<NodePlace> nodes;               // [node]
  std::vector<std::string> names;             // of routers, for messages
  Grid grid;
  std::vector<int> heights;  // of the routers of a tree, leaves 0; empty: no tree

  // A new router whose ports lead nowhere.
  emu::RouterId add_router(std::string name, int ports);
  emu::NodeId add_node(emu::RouterId router, int port);
  void connect(emu::RouterId a, int port_a, emu::RouterId b, int port_b);
  // Most ports of any router.
  int ports_max() const;
};

// Every link leads back to where it comes from, and every node can reach every other; an error
// names what cannot be reached.
emu::Result<void> check_graph(const Graph& graph);

}  // namespace fabric
