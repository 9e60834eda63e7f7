// What holds between keys, and the small languages inside strings (lanes, arbitration tables).
#include <algorithm>
#include <bit>
#include <charconv>
#include <map>
#include <span>

#include "emu/config/fields.h"
#include "emu/config/node_address.h"
#include "emu/config/rules.h"

namespace emu::config {
namespace {

// A number at the start of `text`, taken off it; false if there is none or it is above `max`.
bool take_number(std::string_view& text, unsigned max, unsigned& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || value > max) return false;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return true;
}

bool take(std::string_view& text, char c) {
  if (!text.starts_with(c)) return false;
  text.remove_prefix(1);
  return true;
}

// HCAs that the topology has room for; 0: only its file knows.
std::uint32_t room_of(const NetworkConfig& network) {
  const TopologyChoice& topology = network.topology;
  // Far above any limit, far below an overflow.
  constexpr std::uint32_t kMany = 1 << 20;
  std::uint32_t room = 1;
  switch (topology.kind) {
    case Topology::single:
      return topology.sizes.empty() ? 64 : topology.sizes[0];
    case Topology::fat_tree:
      return 64;
    case Topology::file:
      return 0;
    case Topology::tree:
      for (std::uint32_t l = 0; l < topology.sizes[1]; ++l)
        room = std::min(kMany, room * topology.sizes[0]);
      return room;
    default:
      for (const std::uint32_t side : topology.sizes) room = std::min(kMany, room * side);
      return room * network.nodes_per_router;
  }
}

// Sizes that were not named.
void complete(NetworkConfig& network) {
  TopologyChoice& topology = network.topology;
  if (topology.is_grid() && topology.sizes.empty()) topology.sizes = {network.k, network.k};
}

Result<void> resolve_nodes(Config& config, bool nodes_given, bool node_tables) {
  NetworkConfig& network = config.network;
  const std::uint32_t room = room_of(network);
  if (room == 0 && !nodes_given && !node_tables) {
    return fail("network.nodes: must say how many nodes are in {}", network.topology.file);
  }
  if (node_tables) {
    if (nodes_given && network.nodes != config.nodes.size()) {
      return fail("network.nodes = {}: there are {} [[node]] tables", network.nodes,
                  config.nodes.size());
    }
    network.nodes = static_cast<std::uint32_t>(config.nodes.size());
  } else if (!nodes_given &&
             (network.topology.kind != Topology::single || !network.topology.sizes.empty())) {
    network.nodes = room;
  }
  const std::uint32_t most =
      std::min<std::uint32_t>(room == 0 ? kNodesVirtualMax : room, kNodesVirtualMax);
  if (network.nodes > most) {
    return fail("network.nodes = {}: must be 1 … {} for {}", network.nodes, most,
                print_topology(network.topology));
  }
  if (!node_tables) {
    config.nodes.clear();
    for (std::uint32_t i = 0; i < network.nodes; ++i) {
      config.nodes.push_back({.name = fmt::format("n{}", i)});
    }
  }
  for (std::size_t i = 0; i < config.nodes.size(); ++i) {
    if (config.node_index(config.nodes[i].name) != static_cast<int>(i)) {
      return fail("node.name = \"{}\": two nodes have this name", config.nodes[i].name);
    }
  }
  return {};
}

// By its address rdma_cm knows a node. Who has none gets one of 127.1.0.1 and up.
Result<void> check_addresses(const Config& config) {
  constexpr std::uint32_t kGroups = 0xe;  // 224.0.0.0 to 239.255.255.255
  std::map<std::uint32_t, std::size_t> owners;
  for (std::size_t i = 0; i < config.nodes.size(); ++i) {
    const std::uint32_t address = node_address(config, i);
    if (address == 0 || address == ~std::uint32_t{0} || address >> 28 == kGroups)
      return fail("node.ip = \"{}\": must be the address of one host", config.nodes[i].ip);
    const auto [owner, fresh] = owners.emplace(address, i);
    if (fresh) continue;
    const std::size_t named = config.nodes[i].ip.empty() ? owner->second : i;
    return fail("node.ip = \"{}\": must be another for {} than for {}", config.nodes[named].ip,
                config.nodes[i].name, config.nodes[owner->second].name);
  }
  return {};
}

// A packet holds its energy until an HCA's part of the cap has paid for it: its calendar reaches so
// far (hca/host/power.h).
Result<void> check_power_cap(const Config& config) {
  if (config.controls.power_cap_w == 0) return {};
  Config least = config;
  least.controls.power_cap_w = 0;
  least.controls.power_cap_load = find_rule("controls", "power_cap_load")->minimum;
  const double least_w = least.power_cap_w();
  if (config.controls.power_cap_w >= least_w) return {};
  return fail("controls.power_cap_w = {}: must be 0 or at least {:.3g}, as much as load {} takes",
              config.controls.power_cap_w, least_w, least.controls.power_cap_load);
}

Result<void> check_sizes(const NetworkConfig& network) {
  const std::uint32_t bytes = network.packet_size * network.flit_bits / 8;
  // An RC packet carries 28 bytes beside its payload, an AETH or RETH 16 more; 4352 is the slot.
  if (bytes < 64 || bytes > 4352) {
    return fail("network.packet_size = {}: must be {} … {} for flits of {} bits",
                network.packet_size, (64 * 8 + network.flit_bits - 1) / network.flit_bits,
                4352 * 8 / network.flit_bits, network.flit_bits);
  }
  return {};
}

Result<void> check_design(const NetworkConfig& network) {
  const std::uint32_t longest = std::max(network.packet_size, network.control_packet_size);
  if (network.router == Router::vct && network.vc_buf_size < longest)
    return fail("network.vc_buf_size = {}: must be at least {} for router vct: whole packets",
                network.vc_buf_size, longest);
  return {};
}

// Who shares the process of the fabric has no way to it but shm. One lost heartbeat is no silence.
Result<void> resolve_attach(const AttachConfig& attach, HcaProcess process) {
  constexpr std::uint32_t kHeartbeats = 3;
  if (process == HcaProcess::fabric && attach.kind != AttachKind::shm)
    return fail("hca.process = \"fabric\": must have attach.kind shm");
  if (attach.kind == AttachKind::shm) return {};
  if (attach.kind == AttachKind::ethdev && attach.ethdev.empty())
    return fail(
        "attach.ethdev = \"\": must be a device for attach.kind ethdev, such as "
        "net_af_packet0,iface=veth0");
  if (attach.heartbeat_ms * kHeartbeats <= attach.dead_after_ms) return {};
  return fail("attach.dead_after_ms = {}: must be at least {}, {} times heartbeat_ms",
              attach.dead_after_ms, attach.heartbeat_ms * kHeartbeats, kHeartbeats);
}

// A link without a rate has no power either. Virtual time goes from event to event of the engine,
// and packets that pass it by are none.
Result<void> resolve_pass_through(Config& config) {
  if (!config.network.pass_through) return {};
  if (config.clock.mode == ClockMode::virtual_) {
    return fail("network.pass_through = true: must be false for clock.mode virtual");
  }
  config.controls.power_control = false;
  return {};
}

Result<void> check_congestion(const Config& config) {
  const Congestion scheme = config.controls.congestion;
  if (config.attach.kind != AttachKind::shm && hears_of_routers(scheme))
    return fail(
        "controls.congestion = \"{}\": must be credit or none for attach.kind {}: what it "
        "hears of routers is on the fabric's host alone",
        name_of(scheme), name_of(config.attach.kind));
  const bool detected = scheme == Congestion::vct1 || scheme == Congestion::vct2;
  if (detected && config.network.router != Router::vct)
    return fail("controls.congestion = \"{}\": must have router vct: its routers detect",
                name_of(scheme));
  const bool marked = scheme == Congestion::ibcc || scheme == Congestion::dcqcn;
  const Router router = config.network.router;
  if (marked && (router == Router::pcs || router == Router::cell))
    return fail("controls.congestion = \"{}\": must not have router {}, which marks nothing",
                name_of(scheme), name_of(router));
  if (config.controls.mark_all <= config.controls.mark_from)
    return fail("controls.mark_all = {}: must be more than mark_from", config.controls.mark_all);
  if (config.power_herd() && router == Router::cell)
    return fail("controls.peak_power = \"powerherd\": must not have router cell");
  return {};
}

// Who writes a table wants it read. WRR has one level: who writes a low table wants two.
Result<void> check_arbitration(const QosConfig& qos) {
  const auto any = [&](Scheduler routers, HcaScheduler hcas) {
    return qos.scheduler == routers || qos.hca_scheduler == hcas;
  };
  const auto& high = qos.qos_vlarb_high;
  const auto& low = qos.qos_vlarb_low;
  const bool wrr = any(Scheduler::wrr, HcaScheduler::wrr);
  if (any(Scheduler::two_level, HcaScheduler::two_level) || (low.empty() && (wrr || high.empty())))
    return {};
  if (wrr) {
    return fail(
        "qos.qos_vlarb_low = \"{}\": must be empty for scheduler wrr, which has qos_vlarb_high "
        "alone",
        print_weights(low));
  }
  return fail("qos.qos_vlarb_{} = \"{}\": must have scheduler or hca_scheduler two_level or wrr",
              high.empty() ? "low" : "high", print_weights(high.empty() ? low : high));
}

Result<void> check_lanes(const Config& config) {
  const QosConfig& qos = config.qos;
  const std::uint16_t there = lanes_there(config.network);
  std::uint16_t taken = 0;
  for (std::size_t c = 0; c < kClassCount; ++c) {
    const std::uint16_t lanes = qos.class_vls[c];
    // Preemption lets any class be on any lane.
    if (config.network.router == Router::p) taken = 0;
    if (lanes == 0 || (lanes & ~there) != 0 || (lanes & taken) != 0) {
      return fail("qos.vls_{} = \"{}\": must be lanes among \"{}\" that no other class has",
                  kClassNames[c], print_lanes(lanes),
                  print_lanes(static_cast<std::uint16_t>(there & ~taken)));
    }
    taken = static_cast<std::uint16_t>(taken | lanes);
  }
  if ((qos.class_vls[0] & (1u << kControlVl)) == 0) {
    return fail("qos.vls_control = \"{}\": must contain 15", print_lanes(qos.class_vls[0]));
  }
  for (std::size_t sl = 0; qos.qos_sl2vl_given && sl < 16; ++sl) {
    const auto of_class = static_cast<std::size_t>(qos.sl_class[sl]);
    if ((qos.class_vls[of_class] & (1u << qos.qos_sl2vl[sl])) == 0) {
      return fail("qos.qos_sl2vl = [… {} …]: SL{} is {}, must be one of the lanes \"{}\"",
                  qos.qos_sl2vl[sl], sl, kClassNames[of_class],
                  print_lanes(qos.class_vls[of_class]));
    }
  }
  return {};
}

// Lanes of the classes when nobody said: a quarter of the data lanes for best effort, as 4 of 16.
// On the rings of a torus every class needs two, before and behind the dateline: control too.
Result<void> share_lanes(Config& config) {
  const bool rings = config.network.topology.kind == Topology::torus;
  const std::uint32_t data = config.network.num_vcs - 1 - (rings ? 1 : 0);
  const std::uint32_t least = rings ? 4 : 2;
  if (data < least) {
    return fail("network.num_vcs = {}: must be {} … 16 unless qos.vls_* are given",
                config.network.num_vcs, rings ? 6 : 3);
  }
  const std::uint32_t best_effort = std::max(rings ? 2u : 1u, (config.network.num_vcs) / 4);
  config.qos.class_vls[0] =
      static_cast<std::uint16_t>(1u << kControlVl | (rings ? 1u << data : 0u));
  config.qos.class_vls[1] =
      static_cast<std::uint16_t>(((1u << data) - 1) & ~((1u << best_effort) - 1));
  config.qos.class_vls[2] = static_cast<std::uint16_t>((1u << best_effort) - 1);
  if (config.network.router == Router::p)
    config.qos.class_vls[1] = config.qos.class_vls[2] =
        static_cast<std::uint16_t>((1u << data) - 1);
  return {};
}

}  // namespace

bool parse_topology(std::string_view text, TopologyChoice& choice) {
  choice = {};
  const std::size_t colon = text.find(':');
  const std::string_view name = text.substr(0, colon);
  choice.kind =
      static_cast<Topology>(std::ranges::find(kTopologyNames, name) - kTopologyNames.begin());
  if (colon == std::string_view::npos) return true;
  text.remove_prefix(colon + 1);
  if (choice.kind == Topology::file) {
    choice.file = text;
    return true;
  }
  do {
    unsigned size = 0;
    if (!take_number(text, 64, size) || size < (choice.kind == Topology::single ? 1u : 2u)) {
      return false;
    }
    choice.sizes.push_back(size);
  } while (take(text, 'x'));
  return text.empty();
}

std::string print_topology(const TopologyChoice& choice) {
  std::string text(names_of(choice.kind)[static_cast<std::size_t>(choice.kind)]);
  if (choice.kind == Topology::file) return text + ":" + choice.file;
  for (std::size_t i = 0; i < choice.sizes.size(); ++i)
    text += fmt::format("{}{}", i == 0 ? ':' : 'x', choice.sizes[i]);
  return text;
}

std::uint16_t lanes_there(const NetworkConfig& network) {
  return static_cast<std::uint16_t>(((1u << (network.num_vcs - 1)) - 1) | (1u << kControlVl));
}

std::uint16_t parse_lanes(std::string_view text) {
  unsigned lanes = 0;
  do {
    unsigned first = 0;
    if (!take_number(text, 15, first)) return 0;
    unsigned last = first;
    if (take(text, '-') && (!take_number(text, 15, last) || last < first)) return 0;
    lanes |= ((2u << last) - 1) & ~((1u << first) - 1);
  } while (take(text, ','));
  return text.empty() ? static_cast<std::uint16_t>(lanes) : std::uint16_t{0};
}

std::string print_lanes(std::uint16_t lanes) {
  std::string text;
  for (int first = 0; first < 16; ++first) {
    if ((lanes >> first & 1) == 0) continue;
    int last = first;
    while (last < 15 && (lanes >> (last + 1) & 1) != 0) ++last;
    if (!text.empty()) text += ',';
    text += first == last ? fmt::format("{}", first) : fmt::format("{}-{}", first, last);
    first = last;
  }
  return text;
}

bool parse_weights(std::string_view text, std::vector<VlWeight>& weights) {
  weights.clear();
  if (text.empty()) return true;
  do {
    unsigned vl = 0;
    unsigned weight = 0;
    // VL15 is not arbitrated; IBA tables have at most 64 entries.
    if (!take_number(text, 14, vl) || !take(text, ':') || !take_number(text, 255, weight) ||
        weights.size() == 64) {
      return false;
    }
    weights.push_back({static_cast<Vl>(vl), static_cast<std::uint8_t>(weight)});
  } while (take(text, ','));
  return text.empty();
}

std::string print_weights(const std::vector<VlWeight>& weights) {
  std::string text;
  for (const VlWeight& entry : weights) {
    text += fmt::format("{}{}:{}", text.empty() ? "" : ",", entry.vl, entry.weight);
  }
  return text;
}

Result<void> resolve(Config& config, bool nodes_given, bool node_tables, bool lanes_given) {
  config.energy.flit_bits = config.network.flit_bits;
  if (auto sizes = check_sizes(config.network); !sizes) return sizes;
  if (auto design = check_design(config.network); !design) return design;
  if (auto scheme = check_congestion(config); !scheme) return scheme;
  complete(config.network);
  if (auto passes = resolve_pass_through(config); !passes) return passes;
  if (auto attaches = resolve_attach(config.attach, config.hca.process); !attaches) return attaches;
  if (!lanes_given) {
    if (auto lanes = share_lanes(config); !lanes) return lanes;
  }
  if (auto lanes = check_lanes(config); !lanes) return lanes;
  if (auto tables = check_arbitration(config.qos); !tables) return tables;
  if (auto nodes = resolve_nodes(config, nodes_given, node_tables); !nodes) return nodes;
  if (auto addresses = check_addresses(config); !addresses) return addresses;
  return check_power_cap(config);
}

}  // namespace emu::config
