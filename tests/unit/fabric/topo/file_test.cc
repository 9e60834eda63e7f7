#include "fabric/topo/file.h"

#include <gtest/gtest.h>

#include "emu/base/prng.h"

namespace fabric {
namespace {

// As ibnetdiscover of infiniband-diags prints it: two switches, two hosts, one of them with two
// ports.
constexpr const char* kTwoSwitches = R"(#
# Topology file: generated on Tue Jun  5 14:15:10 2007
#
# Initiated from node 0008f10403960558 port 0008f10403960559

Non-Chassis Nodes

vendid=0x8f1
devid=0x5a06
sysimgguid=0x5442ba00003000
switchguid=0x5442ba00003080(5442ba00003080)
Switch	24 "S-005442ba00003080"		# "ISR9024 Voltaire" base port 0 lid 6 lmc 0
[22]	"H-0008f10403961354"[1](8f10403961355) 		# "MT23108 InfiniHost" lid 4 4xSDR
[10]	"S-0008f10400410015"[1] 		# "SW-6IB4 Voltaire" lid 3 4xSDR
[8]	"H-0008f10403960558"[2](8f1040396055a) 		# "MT23108 InfiniHost" lid 14 4xSDR

vendid=0x8f1
devid=0x5a05
switchguid=0x8f10400410015(8f10400410015)
Switch	8 "S-0008f10400410015"		# "SW-6IB4 Voltaire" base port 0 lid 3 lmc 0
[6]	"H-0008f10403960984"[1](8f10403960985) 		# "MT23108 InfiniHost" lid 16 4xSDR
[4][ext 2]	"H-005442b100004900"[1](5442b100004901) 		# "MT23108 InfiniHost" lid 12 4xSDR
[1]	"S-005442ba00003080"[10]		# "ISR9024 Voltaire" lid 6 1xSDR
[3]	"H-0008f10403960558"[1](8f10403960559) 		# "MT23108 InfiniHost" lid 10 4xSDR

vendid=0x2c9
devid=0x5a44
caguid=0x8f10403960984
Ca	2 "H-0008f10403960984"		# "MT23108 InfiniHost"
[1](8f10403960985) 	"S-0008f10400410015"[6]		# lid 16 lmc 1 "SW-6IB4 Voltaire" lid 3 4xSDR

vendid=0x2c9
devid=0x5a44
caguid=0x5442b100004900
Ca	2 "H-005442b100004900"		# "MT23108 InfiniHost"
[1](5442b100004901) 	"S-0008f10400410015"[4][ext 2]		# lid 12 lmc 1 "SW-6IB4 Voltaire" lid 3 4xSDR

vendid=0x2c9
devid=0x5a44
caguid=0x8f10403961354
Ca	2 "H-0008f10403961354"		# "MT23108 InfiniHost"
[1](8f10403961355) 	"S-005442ba00003080"[22]		# lid 4 lmc 1 "ISR9024 Voltaire" lid 6 4xSDR

vendid=0x2c9
devid=0x5a44
caguid=0x8f10403960558
Ca	2 "H-0008f10403960558"		# "MT23108 InfiniHost"
[2](8f1040396055a) 	"S-005442ba00003080"[8]		# lid 14 lmc 1 "ISR9024 Voltaire" lid 6 4xSDR
[1](8f10403960559) 	"S-0008f10400410015"[3]		# lid 10 lmc 1 "SW-6IB4 Voltaire" lid 3 1xSDR
)";

std::string error_of(std::string_view text, std::string_view source = "net") {
  const auto graph = read_graph(text, source);
  return graph ? std::string() : graph.error().message;
}

TEST(Ibnetdiscover, TwoSwitches) {
  const Graph graph = read_graph(kTwoSwitches, "fabric.txt").value();
  ASSERT_EQ(graph.routers.size(), 2U);
  EXPECT_EQ(graph.names[0], "S-005442ba00003080");
  EXPECT_EQ(graph.routers[0].size(), 24U);
  EXPECT_EQ(graph.routers[1].size(), 8U);
  EXPECT_EQ(graph.routers[0][9].router, 1);
  EXPECT_EQ(graph.routers[0][9].port, 0);
  EXPECT_EQ(graph.routers[1][0].router, 0);
  // In the order of the Ca lines and their ports.
  ASSERT_EQ(graph.nodes.size(), 5U);
  const NodePlace expected[] = {{1, 5}, {1, 3}, {0, 21}, {1, 2}, {0, 7}};
  for (std::size_t n = 0; n < 5; ++n) {
    EXPECT_EQ(graph.nodes[n].router, expected[n].router) << n;
    EXPECT_EQ(graph.nodes[n].port, expected[n].port) << n;
  }
}

// Told by the switch alone, as in a file that was cut by hand.
TEST(Ibnetdiscover, AdaptersWithoutTheirOwnBlock) {
  const Graph graph =
      read_graph("Switch 4 \"S-1\"\n[2] \"H-b\"[1]\r\n[1] \"H-a\"[1]\n", "x").value();
  ASSERT_EQ(graph.nodes.size(), 2U);
  EXPECT_EQ(graph.nodes[0].port, 0);
  EXPECT_EQ(graph.nodes[1].port, 1);
}

// A management port inside a switch may have a name like a switch's: its line says that it is none.
TEST(Ibnetdiscover, TheLineTellsWhatADeviceIsNotItsName) {
  const Graph graph = read_graph(
                          R"(Switch	4 "S-1"		# "edge" base port 0 lid 1 lmc 0
[1]	"H-a"[1](a) 		# "host HCA-1" lid 4 4xEDR
[3]	"S-2"[1](2) 		# "edge management" lid 5 4xEDR
Ca	1 "S-2"		# "edge management"
[1](2) 	"S-1"[3]		# lid 5 lmc 0 "edge" lid 1 4xEDR
Ca	1 "H-a"		# "host HCA-1"
[1](a) 	"S-1"[1]		# lid 4 lmc 0 "edge" lid 1 4xEDR
)",
                          "x")
                          .value();
  EXPECT_EQ(graph.routers.size(), 1U);
  ASSERT_EQ(graph.nodes.size(), 2U);
  EXPECT_EQ(graph.nodes[0].port, 2);
  EXPECT_EQ(graph.nodes[1].port, 0);
  // The other way round, too.
  const Graph odd = read_graph("Switch 4 \"H-1\"\n[1] \"S-a\"[1]\nCa 1 \"S-a\"\n", "x").value();
  EXPECT_EQ(odd.routers.size(), 1U);
  EXPECT_EQ(odd.nodes.size(), 1U);
}

// Switches of HDR and NDR have an adapter inside, on a port behind those of hosts.
TEST(Ibnetdiscover, AggregationNodesAreNoHosts) {
  const Graph graph =
      read_graph(
          R"(Switch	65 "S-1"		# "MF0;leaf:MQM9700/U1" enhanced port 0 lid 1 lmc 0
[1]	"H-a"[1](a) 		# "host HCA-1" lid 4 4xNDR
[64]	"S-2"[2] 		# "spine" lid 2 4xNDR
[65]	"H-an1"[1](an1) 		# "Mellanox Technologies Aggregation Node" lid 8 4xNDR
Switch	41 "S-2"		# "spine" base port 0 lid 2 lmc 0
[2]	"S-1"[64] 		# "MF0;leaf:MQM9700/U1" lid 1 4xNDR
[41]	"H-an2"[1](an2) 		# "Mellanox Technologies Aggregation Node" lid 9 4xHDR
Ca	1 "H-an1"		# "Mellanox Technologies Aggregation Node"
[1](an1) 	"S-1"[65]		# lid 8 lmc 0 "MF0;leaf:MQM9700/U1" lid 1 4xNDR
Ca	1 "H-a"		# "host HCA-1"
[1](a) 	"S-1"[1]		# lid 4 lmc 0 "MF0;leaf:MQM9700/U1" lid 1 4xNDR
)",
          "x")
          .value();
  ASSERT_EQ(graph.nodes.size(), 1U);
  EXPECT_EQ(graph.nodes[0].router, 0);
  EXPECT_EQ(graph.nodes[0].port, 0);
  EXPECT_EQ(graph.routers[0].size(), 64U);
  EXPECT_EQ(graph.routers[0][63].router, 1);
}

TEST(Ibnetdiscover, ErrorsNameFileAndLine) {
  EXPECT_EQ(error_of("Switch 4 \"S-1\"\nhello there\n"),
            "net:2: neither a device, a port nor a comment");
  EXPECT_EQ(error_of("[1] \"H-a\"[1]\n"), "net:1: a port before any device");
  EXPECT_EQ(error_of("Switch many \"S-1\"\n"),
            "net:1: a device has a number of ports and a name in quotes");
  EXPECT_EQ(error_of("Switch 255 \"S-1\"\n"), "net:1: 255 ports; 1 to 254 are possible");
  EXPECT_EQ(error_of("Switch 65 \"S-1\"\n[65] \"H-a\"[1] # \"host\"\n"),
            "net:2: port 65; 1 to 64 are possible");
  EXPECT_EQ(error_of("Switch 4 \"S-1\"\n\nSwitch 4 \"S-1\"\n"),
            "net:3: \"S-1\" was described before");
  EXPECT_EQ(error_of("Switch 4 \"S-1\"\n[5] \"H-a\"[1]\n"), "net:2: port 5 of a device that has 4");
  EXPECT_EQ(error_of("Switch 4 \"S-1\"\n[1] \"H-a\"\n"),
            "net:2: a port line is [port] \"device\"[port]");
  EXPECT_EQ(error_of("Switch 4 \"S-1\"\n[1] \"S-1\"[1]\n"), "net:2: a port is linked to itself");
  EXPECT_EQ(error_of("Switch 4 \"S-1\"\n[1] \"H-a\"[1]\n[2] \"H-a\"[1]\n"),
            "net:3: \"H-a\" port 1 was linked to \"S-1\" port 1 in line 2");
  EXPECT_EQ(error_of("Switch 4 \"S-1\"\n[1] \"S-2\"[1]\n"),
            "net:2: switch \"S-2\" is described nowhere");
  EXPECT_EQ(error_of("Switch 4 \"S-1\"\n[1] \"S-2\"[9]\nSwitch 2 \"S-2\"\n"),
            "net:2: \"S-2\" has no port 9");
  EXPECT_EQ(error_of("Ca 1 \"H-a\"\n[1] \"H-b\"[1]\n"),
            "net:2: a link has no switch at either end");
  EXPECT_EQ(error_of("# nothing\n"), "net: topology: no node is attached to any router");
  EXPECT_EQ(error_of(""), "net: is empty or cannot be read");
  EXPECT_EQ(error_of("Switch 2 \"S-1\"\n[1] \"H-a\"[1]\nSwitch 2 \"S-2\"\n[1] \"H-b\"[1]\n"),
            "net: topology: no way leads from S-1 to S-2");
}

constexpr const char* kToml = R"(
[[switch]]
name = "s0"
ports = 4
[[switch]]
name = "s1"
ports = 3
[[node]]
at = "s0:0"
[[node]]
at = "s1:2"
[[link]]
ends = ["s0:3", "s1:0"]
)";

TEST(TomlGraph, ReadsSwitchesNodesAndLinks) {
  const Graph graph = read_graph(kToml, "net.toml").value();
  ASSERT_EQ(graph.routers.size(), 2U);
  EXPECT_EQ(graph.routers[0][3].router, 1);
  EXPECT_EQ(graph.routers[1][0].port, 3);
  EXPECT_EQ(graph.nodes[1].router, 1);
  EXPECT_EQ(graph.nodes[1].port, 2);
}

TEST(TomlGraph, ErrorsNameFileAndLine) {
  const auto error = [](const std::string& text) { return error_of(text, "n.toml"); };
  EXPECT_EQ(error("nodes = 3\n"), "n.toml:1: nodes: unknown; must be switch, node or link");
  EXPECT_EQ(error("switch = 3\n"), "n.toml:1: switch: must be [[switch]] tables");
  EXPECT_EQ(error("\n[[switch]]\nports = 3\n"),
            "n.toml:2: switch.name: must be 1 to 64 characters, none of them ':'");
  EXPECT_EQ(error("[[switch]]\nname = \"a\"\n"), "n.toml:1: switch.ports: must be 1 to 64");
  const std::string one = "[[switch]]\nname = \"a\"\nports = 2\n";
  EXPECT_EQ(error(one + one), "n.toml:4: switch.name = \"a\": two switches have it");
  EXPECT_EQ(error(one + "[[node]]\nat = \"a:2\"\n"), "n.toml:4: \"a:2\" is no port of a switch");
  EXPECT_EQ(error(one + "[[node]]\nat = \"a:x\"\n"), "n.toml:4: \"a:x\" is no port of a switch");
  EXPECT_EQ(error(one + "[[node]]\nat = \"b:0\"\n"), "n.toml:4: \"b:0\" is no port of a switch");
  EXPECT_EQ(error(one + "[[node]]\nat = \"a:0\"\n[[node]]\nat = \"a:0\"\n"),
            "n.toml:6: \"a:0\" leads somewhere already");
  EXPECT_EQ(error(one + "[[link]]\nends = [\"a:0\"]\n"),
            "n.toml:4: link.ends: must be two ports, such as [\"s0:4\", \"s1:0\"]");
  EXPECT_EQ(error(one + "[[link]]\nends = [\"a:0\", \"a:0\"]\n"),
            "n.toml:4: link.ends: a port is linked to itself");
  EXPECT_NE(error("[[switch\n").find("n.toml:1: not TOML"), std::string::npos);
}

// Whatever stands in the file, the answer is a graph that fits or one line.
TEST(GraphFile, DamagedTextIsRefusedInOneLine) {
  for (std::uint64_t seed = 1; seed <= 3000; ++seed) {
    emu::Prng random(seed);
    const bool toml = seed % 2 == 0;
    std::string text(toml ? kToml : kTwoSwitches);
    for (std::uint32_t i = 1 + random.below(6); i > 0; --i) {
      const std::size_t at = random.below(static_cast<std::uint32_t>(text.size()));
      if (random.below(3) == 0) {
        text.erase(at, random.below(40));
      } else if (random.below(2) == 0) {
        text.insert(at, 1, static_cast<char>(random.below(256)));
      } else {
        text[at] = "[]\"(0123456789SHC\n"[random.below(18)];
      }
      if (text.empty()) text.push_back('x');
    }
    const auto graph = read_graph(text, toml ? "n.toml" : "n");
    if (graph) {
      EXPECT_TRUE(check_graph(*graph)) << "seed " << seed;
    } else {
      EXPECT_EQ(graph.error().message.find('\n'), std::string::npos) << "seed " << seed;
      EXPECT_TRUE(graph.error().message.starts_with("n")) << "seed " << seed;
    }
  }
}

}  // namespace
}  // namespace fabric
