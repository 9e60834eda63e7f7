// Graphs from files. In: the text and the name of the file. Out: the Graph, or an error of one line
// that begins with "file:line: ".
#pragma once

#include <string_view>

#include "emu/base/result.h"
#include "fabric/topo/graph.h"

namespace fabric {

inline constexpr std::size_t kGraphBytesMax = 16U << 20;

// By the name's ending: TOML for .toml, else ibnetdiscover's output.
emu::Result<Graph> read_graph(std::string_view text, std::string_view source);

// The output of ibnetdiscover (infiniband-diags) as it is. Port N of a switch is port N - 1 here.
// Each port of a channel adapter that is linked to a switch is a node, in the order of the "Ca"
// lines and their ports, whatever its name begins with; Aggregation Nodes are left out. Links may
// be told at either end or at both, but must agree.
emu::Result<Graph> read_ibnetdiscover(std::string_view text, std::string_view source);

// [[switch]] name = "s0", ports = 8;  [[node]] at = "s0:0";  [[link]] ends = ["s0:4", "s1:0"].
// Ports count from 0; nodes are numbered in their order.
emu::Result<Graph> read_toml_graph(std::string_view text, std::string_view source);

}  // namespace fabric
