// The configuration: defaults equal the schema, what is printed loads again, errors are one line.
#include "emu/config/config.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <random>
#include <set>
#include <string>

#include "emu/base/prng.h"
#include "emu/config/agreed.h"
#include "emu/config/fields.h"
#include "emu/config/rules.h"

namespace {

using emu::Config;
using emu::TrafficClass;

std::string error_of(std::string_view toml) {
  const auto config = Config::parse(toml, "c.toml");
  return config ? "accepted" : config.error().message;
}

TEST(Config, EmptyTextIsTheDefault) {
  const Config config = *Config::parse("");
  EXPECT_EQ(config.to_toml(), Config().to_toml());
  EXPECT_EQ(config.nodes.size(), 8u);
  EXPECT_EQ(config.nodes[7].name, "n7");
  EXPECT_EQ(config.network.cycle_time().cycle_ps, 320'000u);
  EXPECT_EQ(config.qos.lanes_of_sl(0), 0x000f);
  EXPECT_EQ(config.qos.lanes_of_sl(1), 0x7ff0);
  EXPECT_EQ(config.qos.lanes_of_sl(15), 0x8000);
}

// Every key of the schema has a field, every field a key, and both name the same default.
TEST(Config, FieldsAndSchemaAgree) {
  std::set<std::string> fields;
  const Config config;
  emu::config::visit_fields(config, [&](std::string_view section, std::string_view key, auto&) {
    fields.insert(fmt::format("{}.{}", section, key));
  });
  emu::NodeConfig node;
  emu::config::visit_node_fields(node, [&](std::string_view section, std::string_view key, auto&) {
    fields.insert(fmt::format("{}.{}", section, key));
  });
  const std::string printed = config.to_toml();
  std::set<std::string> keys;
  for (const emu::config::Rule& rule : emu::config::rules()) {
    keys.insert(fmt::format("{}.{}", rule.section, rule.key));
    EXPECT_FALSE(rule.description.empty()) << rule.key;
    if (rule.fallback.empty() || rule.section == "node") continue;
    const std::string section = printed.substr(printed.find(fmt::format("[{}]", rule.section)));
    const std::string line = fmt::format("\n{} = {}", rule.key, rule.fallback);
    const auto at = section.find(line);
    ASSERT_NE(at, std::string::npos) << rule.section << line;
    // Nothing but a comment (or the fraction of a whole number) may follow.
    const char next = section[at + line.size()];
    EXPECT_TRUE(next == ' ' || next == '.') << line;
  }
  EXPECT_EQ(fields, keys);
}

TEST(Config, PrintedConfigurationLoadsAgain) {
  const auto config = Config::parse(R"(
[network]
topology = "mesh"
k = 3
link_mbps = 1600
[qos]
scheduler = "two_level"
qos_vlarb_high = "4:64,5:32"
qos_sl2vl = [0,4,1,2,3,0,0,0,0,0,0,0,0,0,0,15]
[controls]
power_cap_w = 21
[attach]
kind = "udp"
key_file = "/tmp/a \"quoted\" \\ name"
[[node]]
name = "alpha"
ip = "10.0.0.1"
[[node]]
name = "beta"
)");
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->network.nodes, 2u);
  EXPECT_EQ(config->node_index("beta"), 1);
  EXPECT_EQ(config->node_index("gamma"), -1);
  EXPECT_EQ(config->qos.qos_vlarb_high, (std::vector<emu::VlWeight>{{4, 64}, {5, 32}}));
  EXPECT_EQ(config->qos.lanes_of_sl(1), 1u << 4);
  EXPECT_EQ(config->power_cap_w(), 21);
  EXPECT_EQ(config->attach.key_file, "/tmp/a \"quoted\" \\ name");
  const auto again = Config::parse(config->to_toml());
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_EQ(again->to_toml(), config->to_toml());
}

// Daemons read a copy of the file, and are started from any directory.
TEST(Config, AKeyFileIsBesideTheConfiguration) {
  const std::string path = testing::TempDir() + "key_file_test.toml";
  const auto key_of = [&path](const std::string& key) {
    std::ofstream(path) << "[attach]\nkey_file = \"" << key << "\"\n";
    return Config::load(path)->attach.key_file;
  };
  EXPECT_EQ(key_of("my.key"), testing::TempDir() + "my.key");
  EXPECT_EQ(key_of("/etc/my.key"), "/etc/my.key");
  EXPECT_EQ(key_of(""), "");
  std::remove(path.c_str());
}

TEST(Config, ErrorsNameKeyValueAndRange) {
  EXPECT_EQ(error_of("[network]\nlink_mbps = 0"),
            "c.toml:2: network.link_mbps = 0: must be a whole number, 1 … 100000");
  EXPECT_EQ(error_of("[network]\nlink_mbps = \"fast\""),
            "c.toml:2: network.link_mbps = \"fast\": must be a whole number, 1 … 100000");
  EXPECT_EQ(error_of("[network]\nlink_mbps = 1e2"),
            "c.toml:2: network.link_mbps = 100.0: must be a whole number, 1 … 100000");
  EXPECT_EQ(error_of("[network]\nflit_bits = 100"),
            "c.toml:2: network.flit_bits = 100: must be a whole number, 32 … 512 in steps of 32");
  EXPECT_EQ(error_of("[network]\ntopology = \"ring\""),
            "c.toml:2: network.topology = \"ring\": must be single, mesh:4x4, torus:4x4x4, "
            "fat_mesh:2x2, fat_tree, tree:4x3 or file:/PATH");
  EXPECT_EQ(error_of("[network]\ntopology = \"mesh:1x4\""),
            "c.toml:2: network.topology = \"mesh:1x4\": must be single, mesh:4x4, torus:4x4x4, "
            "fat_mesh:2x2, fat_tree, tree:4x3 or file:/PATH");
  EXPECT_EQ(error_of("[controls]\nreservable_share = nan"),
            "c.toml:2: controls.reservable_share = nan: must be 0.01 … 1");
  EXPECT_EQ(error_of("[controls]\nadmission = 1"),
            "c.toml:2: controls.admission = 1: must be true or false");
  EXPECT_EQ(error_of("[hca]\nmtu = 1500"),
            "c.toml:2: hca.mtu = 1500: must be one of 256, 512, 1024, 2048, 4096");
  EXPECT_EQ(error_of("[qos]\nqos_sl2vl = [1, 2]"),
            "c.toml:2: qos.qos_sl2vl = [2 values]: must be 16 values, each a whole number, 0 … 15");
  for (const char* weights : {"15:3", "16:3", "0:64,15:1", "0:256"}) {
    EXPECT_EQ(error_of(fmt::format("[qos]\nqos_vlarb_high = \"{}\"", weights)),
              fmt::format("c.toml:2: qos.qos_vlarb_high = \"{}\": must be VL:weight pairs such as "
                          "\"0:64,1:32\", VL 0 … 14 (VL15 is not arbitrated), weight 0 … 255",
                          weights));
  }
}

// WRR has one level, and nobody else reads the low table.
TEST(Config, WrrHasNoLowTable) {
  const std::string low = "qos_vlarb_low = \"0:64\"\n";
  const std::string says =
      "c.toml: qos.qos_vlarb_low = \"0:64\": must be empty for scheduler wrr, which has "
      "qos_vlarb_high alone";
  EXPECT_EQ(error_of("[qos]\nscheduler = \"wrr\"\n" + low), says);
  EXPECT_EQ(error_of("[qos]\nhca_scheduler = \"wrr\"\n" + low), says);
  EXPECT_EQ(error_of("[qos]\nscheduler = \"two_level\"\n" + low), "accepted");
  for (const char* one : {"wrr", "two_level"}) {
    const std::string both = fmt::format("[qos]\nscheduler = \"{}\"\nhca_scheduler = \"{}\"\n", one,
                                         one[0] == 'w' ? "two_level" : "wrr");
    EXPECT_EQ(error_of(both + low), "accepted") << "one of the two reads it";
  }
  EXPECT_EQ(error_of("[qos]\nscheduler = \"wrr\"\nqos_vlarb_high = \"0:64\"\n"), "accepted");
}

// Tables that nobody reads would be ignored in silence.
TEST(Config, TablesHaveASchedulerThatReadsThem) {
  for (const char* table : {"high", "low"}) {
    const std::string key = fmt::format("qos_vlarb_{} = \"0:64\"\n", table);
    EXPECT_EQ(
        error_of("[qos]\n" + key),
        fmt::format("c.toml: qos.qos_vlarb_{} = \"0:64\": must have scheduler or hca_scheduler "
                    "two_level or wrr",
                    table));
    EXPECT_EQ(error_of("[qos]\nscheduler = \"vclk\"\nhca_scheduler = \"two_level\"\n" + key),
              "accepted");
  }
  EXPECT_EQ(error_of("[qos]\nhca_scheduler = \"wrr\"\nqos_vlarb_high = \"0:64\"\n"), "accepted");
}

// Patterns stand for the whole of a value: no line of it, no text before a NUL.
TEST(Config, PatternsAreForTheWholeValue) {
  for (const char* file : {"/a b", "/\\t", "/é", "//"})
    EXPECT_EQ(error_of(fmt::format("[network]\nnodes = 2\ntopology = \"file:{}\"", file)),
              "accepted")
        << file;
  for (const char* topology :
       {"file:/", "file:/a\\nb", "file:/a\\u0000", "file:/a\\r", "single\\n", "xsingle", "singlex",
        "single:8 ", "mesh:2x2x2x2x2x2x2", "tree:2", "file:a"})
    EXPECT_NE(error_of(fmt::format("[network]\nnodes = 2\ntopology = \"{}\"", topology)),
              "accepted")
        << topology;
  const std::string long_path(1000, 'p');
  EXPECT_EQ(error_of("[network]\nnodes = 2\ntopology = \"file:/" + long_path + "\""), "accepted");
  EXPECT_NE(error_of("[network]\nnodes = 2\ntopology = \"file:/" + long_path + "p\""), "accepted");
  EXPECT_EQ(error_of("[attach]\nlisten = \"255.249.19.9:65535\""), "accepted");
  for (const char* listen :
       {"255.249.19.9:65536", "1.2.3.4:0", "1.2.3.4", "1.2.3.4:1:1", " 1.2.3.4:1", ""})
    EXPECT_NE(error_of(fmt::format("[attach]\nlisten = \"{}\"", listen)), "accepted") << listen;
  EXPECT_EQ(error_of("[attach]\nfabric = \"\""), "accepted");
  for (const char* lanes : {"0-3,", ",1", "1--2", "a", ""})
    EXPECT_NE(error_of(fmt::format("[qos]\nvls_best_effort = \"{}\"", lanes)), "accepted") << lanes;
}

TEST(Config, UnknownKeysAreRefusedWithTheNearest) {
  EXPECT_EQ(error_of("[network]\nlink_mbs = 4"),
            "c.toml:2: network.link_mbs: unknown key, did you mean link_mbps?");
  EXPECT_EQ(error_of("[netwrk]\nk = 4"),
            "c.toml:1: netwrk: unknown section, did you mean network?");
  EXPECT_EQ(error_of("[clock]\nzzzzzzzz = 4"), "c.toml:2: clock.zzzzzzzz: unknown key");
  EXPECT_EQ(error_of("nodes = 4").substr(0, 32), "c.toml:1: nodes: unknown section");
  EXPECT_EQ(error_of("[network]\n\"a\\u0000b\\n\" = 4"), "c.toml:2: network.a b : unknown key");
  EXPECT_EQ(error_of("[\"\\u0000\"]"), "c.toml:1:  : unknown section");
}

TEST(Config, NodesAreNamedOnceAndSafely) {
  EXPECT_EQ(Config::parse("[network]\nnodes = 3")->nodes.size(), 3u);
  for (const char* name : {"../x", "a/b", ".", "-x", "", "a b", "n\\u0000"}) {
    EXPECT_NE(error_of(fmt::format("[[node]]\nname = \"{}\"", name)), "accepted") << name;
  }
  EXPECT_EQ(error_of("[[node]]\nname = \"a\"\n[[node]]\nname = \"a\""),
            "c.toml: node.name = \"a\": two nodes have this name");
  EXPECT_EQ(error_of("[[node]]\nip = \"1.2.3.4\""), "c.toml:1: node.name is missing");
  EXPECT_EQ(error_of("[network]\nnodes = 3\n[[node]]\nname = \"a\""),
            "c.toml: network.nodes = 3: there are 1 [[node]] tables");
  EXPECT_EQ(error_of("node = 3"), "c.toml:1: node = 3: must be [[node]] tables");
}

TEST(Config, NodesHaveAddressesOfTheirOwn) {
  const auto nodes = [](const std::string& first, const std::string& second) {
    return error_of(fmt::format(
        "[[node]]\nname = \"a\"\nip = \"{}\"\n[[node]]\nname = \"b\"\nip = \"{}\"", first, second));
  };
  EXPECT_EQ(nodes("10.0.0.1", "255.255.255.254"), "accepted");
  EXPECT_EQ(nodes("", "223.255.255.255"), "accepted");
  for (const char* ip : {"999.1.1.1", "256.0.0.1", "1.2.3", "1.2.3.4.5", "1.2.3.", "1..2.3",
                         "01.2.3.4", "127.1.0.010", "16909060", ".", "1.2.3.4\\n"})
    EXPECT_NE(nodes(ip, ""), "accepted") << ip;
  for (const std::string ip : {"0.0.0.0", "255.255.255.255", "224.0.0.1", "239.255.255.255"})
    EXPECT_EQ(nodes(ip, ""), "c.toml: node.ip = \"" + ip + "\": must be the address of one host");
  EXPECT_EQ(nodes("999.1.1.1", ""), "c.toml:3: node.ip = \"999.1.1.1\": must be an IPv4 address");
  EXPECT_EQ(nodes("10.0.0.1", "10.0.0.1"),
            "c.toml: node.ip = \"10.0.0.1\": must be another for b than for a");
  EXPECT_EQ(nodes("127.1.0.2", ""),
            "c.toml: node.ip = \"127.1.0.2\": must be another for b than for a")
      << "which b gets";
}

TEST(Config, ACapIsThatOfTheSmallestLoadAtLeast) {
  const auto least = [](const char* network) {
    return Config::parse(fmt::format("[network]\n{}\n[controls]\npower_cap_load = 0.001", network));
  };
  for (const char* network :
       {"topology = \"mesh:4x4\"\nflit_bits = 32\npacket_size = 1024\nlink_mbps = 10", ""}) {
    const double cap_w = least(network)->power_cap_w();
    const auto with = [&](double watts) {
      return error_of(fmt::format("[network]\n{}\n[controls]\npower_cap_w = {}", network, watts));
    };
    EXPECT_EQ(with(cap_w * 1.001), "accepted");
    const std::string refused = with(cap_w * 0.9);
    EXPECT_NE(refused.find("controls.power_cap_w = "), std::string::npos) << refused;
    EXPECT_NE(refused.find("must be 0 or at least "), std::string::npos) << refused;
  }
}

TEST(Config, MeshHasANodePerRouterUnlessSaid) {
  EXPECT_EQ(Config::parse("[network]\ntopology = \"mesh\"")->network.nodes, 16u);
  EXPECT_EQ(
      Config::parse("[network]\ntopology = \"mesh\"\nk = 2\nnodes_per_router = 4")->network.nodes,
      16u);
  EXPECT_NE(error_of("[network]\ntopology = \"mesh\"\nk = 2\nnodes = 5"), "accepted");
}

TEST(Config, TopologiesHaveTheirNodes) {
  const auto nodes = [](const std::string& lines) {
    const auto config = Config::parse("[network]\n" + lines);
    return config ? static_cast<int>(config->network.nodes) : -1;
  };
  EXPECT_EQ(nodes("topology = \"single:5\""), 5);
  EXPECT_EQ(nodes("topology = \"single:5\"\nnodes = 3"), 3);
  EXPECT_EQ(nodes("topology = \"single:5\"\nnodes = 6"), -1);
  EXPECT_EQ(nodes("topology = \"single\"\nnodes = 64"), 64);
  EXPECT_EQ(nodes("topology = \"mesh:2x3x4\""), 24);
  EXPECT_EQ(nodes("topology = \"torus:4x4\"\nnodes_per_router = 2"), 32);
  EXPECT_EQ(nodes("topology = \"fat_mesh:2x2\"\nnodes_per_router = 4"), 16);
  EXPECT_EQ(nodes("topology = \"fat_tree\""), 64);
  EXPECT_EQ(nodes("topology = \"tree:2x4\""), 16);
  EXPECT_EQ(nodes("topology = \"file:/net.txt\"\nnodes = 3"), 3);
  EXPECT_EQ(nodes("topology = \"file:/net.txt\""), -1) << "only the file knows";
  EXPECT_EQ(nodes("topology = \"torus:8x8x8\""), 512) << "in virtual time";
  EXPECT_EQ(nodes("topology = \"mesh:16x33\""), -1) << "more than that";
  EXPECT_EQ(nodes("topology = \"mesh:64x64x64x64x64x64\""), -1);
}

// load() stops reading there, so nobody knows how long it is.
TEST(Config, AFileThatIsTooLongIsNotMeasured) {
  EXPECT_EQ(error_of(std::string(1 << 20, '\n')), "accepted");
  EXPECT_EQ(error_of(std::string((1 << 20) + 1, '\n')),
            "c.toml: has more than 1048576 bytes, as many as a cluster file may have");
}

TEST(Config, ASingleRouterHasNoRoomBesideItsSize) {
  EXPECT_EQ(error_of("[network]\ntopology = \"single:4\"\nnodes = 5"),
            "c.toml: network.nodes = 5: must be 1 … 4 for single:4");
  EXPECT_EQ(error_of("[network]\ntopology = \"single:1\"\n"
                     "[[node]]\nname = \"a\"\n[[node]]\nname = \"b\""),
            "c.toml: network.nodes = 2: must be 1 … 1 for single:1");
  EXPECT_EQ(error_of("[network]\ntopology = \"single\"\nnodes = 65"),
            "c.toml: network.nodes = 65: must be 1 … 64 for single");
}

TEST(Config, HostsAgreeOnWhatBothSidesOfALinkGoBy) {
  const auto differs = [](const std::string& here, const std::string& there) {
    for (const std::string& toml : {here, there}) {
      if (const std::string error = error_of(toml); error != "accepted") return error;
    }
    const auto a = agreed_settings(*Config::parse(here));
    const auto b = agreed_settings(*Config::parse(there));
    std::string keys;
    for (std::size_t i = 0; i < a.size(); ++i) {
      if (a[i].value != b[i].value) keys += a[i].key + " ";
    }
    return keys;
  };
  EXPECT_EQ(differs("[network]\npacket_size = 120", ""), "network.packet_size ");
  EXPECT_EQ(differs("[network]\nflit_bits = 64\nlink_mbps = 200", ""),
            "network.link_mbps network.flit_bits ")
      << "the cycle is the same";
  EXPECT_EQ(differs("[hca]\nlink_layer = \"roce_v2\"", ""), "hca.link_layer ");
  EXPECT_EQ(differs("[network]\ntopology = \"single:3\"", "[network]\nnodes = 2"),
            "network.nodes [[node]] name [[node]] ip ");
  EXPECT_EQ(differs("[network]\ntopology = \"single:8\"", ""), "");
  EXPECT_EQ(differs("[network]\ntopology = \"mesh:2x4\"", "[network]\nnodes = 8"),
            "network.topology ");
  EXPECT_EQ(differs("[qos]\nqos_sl2vl = [0,4,0,0,0,0,0,0,0,0,0,0,0,0,0,15]", ""), "qos.qos_sl2vl ");
  EXPECT_EQ(differs("[attach]\nmtu = 9000\n[clock]\nmode = \"virtual\"\n[controls]\n"
                    "congestion = \"none\"\n[network]\nseed = 4",
                    ""),
            "");
  const auto config = *Config::parse("[network]\ntopology = \"mesh:2x4\"");
  EXPECT_EQ(differs(config.to_toml(), "[network]\ntopology = \"mesh:2x4\""), "");
}

TEST(Config, LinksBetweenNodes) {
  const auto links = [](const char* topology, std::size_t a, std::size_t b) {
    return Config::parse(fmt::format("[network]\ntopology = \"{}\"", topology))
        ->links_between(a, b);
  };
  EXPECT_EQ(links("single", 0, 7), 0u);
  EXPECT_EQ(links("mesh:4x4", 0, 15), 6u);
  EXPECT_EQ(links("torus:4x4", 0, 15), 2u);
  EXPECT_EQ(links("mesh:2x3x4", 1, 22), 6u);
  EXPECT_EQ(links("fat_tree", 0, 3), 0u);
  EXPECT_EQ(links("fat_tree", 0, 4), 2u);
  EXPECT_EQ(links("fat_tree", 0, 16), 4u);
  EXPECT_EQ(links("tree:2x4", 0, 15), 6u);
  const auto told = Config::parse(
      "[network]\ntopology = \"file:/n\"\n[[node]]\nname = \"a\"\nlinks_to = \"0b\"\n"
      "[[node]]\nname = \"b\"\nlinks_to = \"30\"");
  EXPECT_EQ(told->links_between(0, 1), 11u);
  EXPECT_EQ(told->links_between(1, 0), 3u);
  EXPECT_EQ(Config::parse(told->to_toml())->to_toml(), told->to_toml());
}

// Every class needs lanes on both sides of a dateline.
TEST(Config, TorusLanes) {
  const auto torus = Config::parse("[network]\ntopology = \"torus:4x4\"");
  EXPECT_EQ(torus->qos.class_vls, (std::array<std::uint16_t, 3>{0xc000, 0x3ff0, 0x000f}));
  const auto six = Config::parse("[network]\ntopology = \"torus:4x4\"\nnum_vcs = 6");
  EXPECT_EQ(six->qos.class_vls, (std::array<std::uint16_t, 3>{0x8010, 0x000c, 0x0003}));
  EXPECT_FALSE(Config::parse("[network]\ntopology = \"torus:4x4\"\nnum_vcs = 5"));
}

TEST(Config, LanesBelongToOneClass) {
  EXPECT_NE(error_of("[qos]\nvls_real_time = \"3-14\""), "accepted");
  EXPECT_NE(error_of("[qos]\nvls_real_time = \"7-4\""), "accepted");
  EXPECT_NE(error_of("[qos]\nvls_control = \"0\""), "accepted");
  EXPECT_NE(error_of("[qos]\nqos_sl2vl = [4,4,0,0,0,0,0,0,0,0,0,0,0,0,0,15]"), "accepted");
  const auto four = Config::parse("[network]\nnum_vcs = 4");
  ASSERT_TRUE(four) << four.error().message;
  EXPECT_EQ(four->qos.class_vls[2], 0x0001);
  EXPECT_EQ(four->qos.class_vls[1], 0x0006);
  EXPECT_NE(error_of("[network]\nnum_vcs = 4\n[qos]\nvls_real_time = \"1-5\""), "accepted");
  EXPECT_NE(error_of("[network]\nnum_vcs = 2"), "accepted");
}

TEST(Config, LaneSetsPrintAsTheyParse) {
  for (unsigned lanes = 1; lanes < 65536; ++lanes) {
    const auto set = static_cast<std::uint16_t>(lanes);
    ASSERT_EQ(emu::config::parse_lanes(emu::config::print_lanes(set)), set);
  }
  for (const char* text : {"", ",", "1-", "-1", "16", "1,,2", "1-2-3", "a", "99999999999"}) {
    EXPECT_EQ(emu::config::parse_lanes(text), 0) << text;
  }
}

// 8 HCAs of 400 Mb/s at 0.74 through one router: 8 * 3.125e6 * 0.74 flits/s * 190.97586 pJ.
TEST(Config, PowerCapFollowsTheLoad) {
  const Config config;
  EXPECT_NEAR(config.power_cap_w(), 18.5e6 * 190.97586e-12, 1e-9);
  EXPECT_NEAR(config.real_time_power_w() + config.best_effort_power_w(), config.power_cap_w(),
              1e-12);
}

// A file describes a live cluster, which has fewer nodes than a run in virtual time.
TEST(Config, AFileHasTheNodesOfALiveCluster) {
  const std::string path = testing::TempDir() + "flitnet-config-test.toml";
  const auto loads = [&](const char* topology) {
    std::ofstream(path) << "[network]\ntopology = \"" << topology << "\"\n";
    return Config::load(path).has_value();
  };
  EXPECT_TRUE(loads("mesh:8x8"));
  EXPECT_FALSE(loads("mesh:8x9"));
  std::remove(path.c_str());
}

TEST(Config, CongestionSchemesHaveTheirRouters) {
  EXPECT_NE(error_of("[controls]\ncongestion = \"vct1\""), "accepted");
  EXPECT_EQ(error_of("[network]\nrouter = \"vct\"\nvc_buf_size = 40\n[controls]\n"
                     "congestion = \"vct1\""),
            "accepted");
  EXPECT_NE(error_of("[network]\nrouter = \"pcs\"\n[controls]\ncongestion = \"ibcc\""), "accepted");
  EXPECT_NE(error_of("[network]\nrouter = \"cell\"\n[controls]\npeak_power = \"powerherd\""),
            "accepted");
}

TEST(Config, FilesThatAreNone) {
  EXPECT_FALSE(Config::load("/nonexistent/cluster.toml"));
  EXPECT_FALSE(Config::load("/"));
  EXPECT_FALSE(Config::load("/dev/zero"));
  EXPECT_EQ(error_of("[network").substr(0, 19), "c.toml:1: not TOML:");
  EXPECT_NE(error_of(std::string(2 << 20, '#')), "accepted");
}

// Mutations of a good file: an error of one line or a configuration that prints and loads again.
TEST(Config, MutatedTextIsRefusedInOneLineOrAccepted) {
  const std::uint64_t seed = std::random_device{}();
  std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
  emu::Prng random(seed);
  const std::string good = Config().to_toml();
  for (int round = 0; round < 500; ++round) {
    std::string text = good;
    const std::uint32_t edits = 1 + random.below(4);
    for (std::uint32_t e = 0; e < edits; ++e) {
      const std::size_t at = random.below(static_cast<std::uint32_t>(text.size()));
      switch (random.below(3)) {
        case 0:
          text[at] = static_cast<char>(random.below(256));
          break;
        case 1:
          text.erase(at, 1 + random.below(20));
          break;
        default:
          text.insert(at,
                      std::string(1 + random.below(3), static_cast<char>(33 + random.below(90))));
      }
      if (text.empty()) break;
    }
    const auto config = Config::parse(text);
    if (config) {
      const auto again = Config::parse(config->to_toml());
      ASSERT_TRUE(again) << again.error().message << "\n" << text;
    } else {
      ASSERT_EQ(config.error().message.find('\n'), std::string::npos) << config.error().message;
      ASSERT_LT(config.error().message.size(), 400u) << config.error().message;
    }
  }
}

TEST(Config, PassThroughHasNoPowerAndNoVirtualTime) {
  const auto config = emu::Config::parse("[network]\npass_through = true");
  ASSERT_TRUE(config);
  EXPECT_FALSE(config->controls.power_control);
  EXPECT_TRUE(emu::Config::parse(config->to_toml())->network.pass_through);
  const auto refused =
      emu::Config::parse("[network]\npass_through = true\n[clock]\nmode = \"virtual\"");
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("pass_through"), std::string::npos);
}

// Completion queues by quarter: right and left, up and down, seen from a node.
TEST(Config, SilenceIsLongerThanAHeartbeat) {
  EXPECT_EQ(error_of("[attach]\nkind = \"udp\"\nheartbeat_ms = 1000"),
            "c.toml: attach.dead_after_ms = 700: must be at least 3000, 3 times heartbeat_ms");
  EXPECT_TRUE(emu::Config::parse("[attach]\nheartbeat_ms = 1000"));  // shm has none
  // A hello holds names of so many letters.
  EXPECT_TRUE(emu::Config::parse("[[node]]\nname = \"" + std::string(31, 'a') + '"'));
  const std::string longer = error_of("[[node]]\nname = \"" + std::string(32, 'a') + '"');
  EXPECT_TRUE(
      longer.ends_with("must be at most 31 letters, digits, '-', '_', the first a letter "
                       "or digit"))
      << longer;
}

TEST(Config, SchemesThatHearOfRoutersAreOnTheirHost) {
  EXPECT_EQ(
      error_of("[attach]\nkind = \"udp\"\n[controls]\ncongestion = \"alo\""),
      "c.toml: controls.congestion = \"alo\": must be credit or none for attach.kind udp: what "
      "it hears of routers is on the fabric's host alone");
  EXPECT_TRUE(emu::Config::parse("[attach]\nkind = \"udp\"\n[controls]\ncongestion = \"none\""));
}

TEST(Config, DatagramsFitIntoBuffersOfCutThrough) {
  const auto longest = [](const std::string& network) {
    return emu::Config::parse("[network]\n" + network)->datagram_bytes();
  };
  EXPECT_EQ(longest(""), 2048U) << "worms need no buffer of their length";
  EXPECT_EQ(longest("router = \"vct\"\nvc_buf_size = 133"), 2048U);
  EXPECT_EQ(longest("router = \"vct\"\nvc_buf_size = 132"), 1024U);
  EXPECT_EQ(longest("router = \"vct\"\nvc_buf_size = 40"), 512U);
  const auto least = emu::Config::parse("[network]\nrouter = \"vct\"\nvc_buf_size = 40");
  EXPECT_EQ(least->buffer_flits_least(), 21U);
}

TEST(Config, QuadrantsOfAGrid) {
  const auto mesh = emu::Config::parse("[network]\ntopology = \"mesh:4x4\"");
  ASSERT_TRUE(mesh);
  EXPECT_EQ(mesh->quadrant(5, 10), 0U);  // right and on
  EXPECT_EQ(mesh->quadrant(5, 8), 1U);   // left and on
  EXPECT_EQ(mesh->quadrant(5, 2), 2U);
  EXPECT_EQ(mesh->quadrant(5, 0), 3U);
  const auto torus = emu::Config::parse("[network]\ntopology = \"torus:4x4\"");
  ASSERT_TRUE(torus);
  EXPECT_EQ(torus->quadrant(0, 1), 0U);
  EXPECT_EQ(torus->quadrant(0, 3), 1U) << "the way to the left is shorter";
  const auto single = emu::Config::parse("[network]\nnodes = 8");
  ASSERT_TRUE(single);
  EXPECT_EQ(single->quadrant(0, 7), 0U);
  EXPECT_EQ(mesh->quadrants(), 4U);
  EXPECT_EQ(torus->quadrants(), 4U);
  for (const char* none : {"nodes = 8", "topology = \"mesh:2x2x2\"", "topology = \"fat_tree\""})
    EXPECT_EQ(emu::Config::parse(std::string("[network]\n") + none)->quadrants(), 1U) << none;
}

}  // namespace
