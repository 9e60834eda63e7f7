// Which router port leads where: routers, links, and where the HCAs sit. Built once from a shape;
// read by fabric/route, fabric/link and fabric/admit.
#pragma once

#include <cstdint>
#include <vector>

#include "emu/base/result.h"
#include "emu/base/units.h"

namespace fabric {

inline constexpr int kRouterPortsMax = 8;
inline constexpr int kRoutersMax = 64;
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

struct Graph {
  int side = 0;                               // routers along an edge of a mesh; 0: no mesh
  std::vector<std::vector<PortEnd>> routers;  // [router][port]
  std::vector<NodePlace> nodes;               // [node]
};

// One router, node n at port n.
emu::Result<Graph> make_single(int nodes);

// side x side routers, router (x, y) = y * side + x. Ports 0 (and 1): its HCAs, node n at router
// n / nodes_per_router. Then one port a neighbour, in the order +x, -x, +y, -y; at the rim they
// lead nowhere.
emu::Result<Graph> make_mesh(int side, int nodes_per_router);
enum class MeshWay : std::uint8_t { x_up = 0, x_down = 1, y_up = 2, y_down = 3 };

}  // namespace fabric
