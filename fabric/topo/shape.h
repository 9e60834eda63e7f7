// Graphs by rule: what the papers build and what is commonly compared with them. In: a Shape,
// filled in from the configuration. Out: the Graph, or an error that names the field and its range.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "emu/base/result.h"
#include "fabric/topo/graph.h"

namespace fabric {

enum class TopologyKind : std::uint8_t {
  single,    // one router, node n at port n
  mesh,      // k-ary n-mesh, sides may differ
  torus,     // k-ary n-cube
  fat_mesh,  // mesh with parallel links between neighbours (MediaWorm section 4)
  fat_tree,  // the GigaNet paper's: 40 routers of 8 ports, 64 nodes, at most 5 routers on a way
  ary_tree,  // k-ary n-tree: k^n nodes, n levels of k^(n-1) routers
  file,      // ibnetdiscover's output or TOML (file.h)
};

struct Shape {
  TopologyKind kind = TopologyKind::single;
  int nodes = 8;             // single
  std::vector<int> sides;    // mesh, torus, fat_mesh: routers along each dimension
  int nodes_per_router = 1;  // mesh, torus, fat_mesh: HCAs at ports 0 ... of every router
  int links = 2;             // fat_mesh: between two neighbours
  int arity = 4;             // ary_tree: k
  int levels = 3;            // ary_tree: n
  std::string text;          // file: its content
  std::string source;        // file: its name, for messages; ending in .toml: TOML
};

emu::Result<Graph> make_graph(const Shape& shape);

emu::Result<Graph> make_single(int nodes);
// Node n sits at router n / nodes_per_router.
emu::Result<Graph> make_grid(const Grid& grid);
// The side x side mesh.
emu::Result<Graph> make_mesh(int side, int nodes_per_router);
// Four pods of four leaf routers (4 nodes below, 4 links up) and four middle ones; eight top
// routers. Middle routers 0 and 1 of a pod lead to tops 0-3, 2 and 3 to tops 4-7. Node n sits at
// leaf n / 4. Routers: leaves 0-15, middle 16-31, tops 32-39. Ports 0-3 lead down, 4-7 up.
emu::Result<Graph> make_fat_tree();
// Router (level l, word w) is l * k^(n-1) + w; level 0 are the leaves, node n sits at leaf n / k.
// Ports 0 ... k-1 lead down, k ... 2k-1 up (Petrini and Vanneschi 1997).
emu::Result<Graph> make_ary_tree(int arity, int levels);

}  // namespace fabric
