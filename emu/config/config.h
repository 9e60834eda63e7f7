// The configuration of a cluster: one value, made of a TOML file checked against schema.json, which
// is the only place that knows types, ranges and defaults. Called by both daemons, the CLI (by
// `fabricd --check`), the simulations.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "emu/base/result.h"
#include "emu/base/units.h"
#include "emu/clock/pace.h"
#include "emu/energy/table.h"

namespace emu {

enum class Topology : std::uint8_t { single, mesh, torus, fat_mesh, fat_tree, tree, file };
enum class Routing : std::uint8_t {
  automatic,
  dor,
  dor_by_load,
  dateline,
  up_down,
  up_by_load,
  adaptive,
  recovery
};
enum class Router : std::uint8_t { np, tr, p, pcs, vct, cell };
enum class FlowControl : std::uint8_t { link, stream };
enum class Crossbar : std::uint8_t { multiplexed, full };
enum class Engine : std::uint8_t { automatic, general };
enum class Counters : std::uint8_t { epoch, wide, overflow };
enum class Scheduler : std::uint8_t { vclk, fgvc, fcfs, rr, wrr, two_level, vclk_hol, fq, fgfq };
// Of the HCAs onto their links: that of the routers, or one of its own.
enum class HcaScheduler : std::uint8_t {
  router,
  vclk,
  fgvc,
  fcfs,
  rr,
  wrr,
  two_level,
  vclk_hol,
  fq,
  fgfq
};
enum class Frame : std::uint8_t { small, large };
enum class Pointer : std::uint8_t { fast, slow };
enum class Congestion : std::uint8_t { credit, alo, self_tuned, none, vct1, vct2, ibcc, dcqcn };
enum class PeakPower : std::uint8_t { scheme, powerherd, none };
enum class PowerBooking : std::uint8_t { links, routers };
enum class VctCounts : std::uint8_t { held, injected };
enum class NoticeWay : std::uint8_t { instant, message };
enum class CompletionQueues : std::uint8_t { global, separate, quad };
enum class LinkLayer : std::uint8_t { infiniband, roce_v2 };
enum class HcaProcess : std::uint8_t { automatic, own, fabric };
enum class AttachKind : std::uint8_t { shm, udp, ethdev };

// "mesh:4x4": a kind and its sizes.
struct TopologyChoice {
  Topology kind = Topology::single;
  // single: nodes; mesh, torus, fat_mesh: routers along each dimension; tree: arity, levels.
  std::vector<std::uint32_t> sizes;
  std::string file;  // path
  bool is_grid() const {
    return kind == Topology::mesh || kind == Topology::torus || kind == Topology::fat_mesh;
  }
  friend bool operator==(const TopologyChoice&, const TopologyChoice&) = default;
};

// [network], in BookSim's words where it has them.
struct NetworkConfig {
  TopologyChoice topology;
  Routing routing = Routing::automatic;
  Router router = Router::np;
  FlowControl flow_control = FlowControl::stream;  // router cell
  std::uint32_t quench_flits = 8;                  // router cell: a longer queue stops its source
  std::uint32_t circuits = 16;                     // router pcs: lanes of a link
  bool accelerate = true;  // router p: flits in a higher class's way go first
  Crossbar crossbar = Crossbar::multiplexed;
  Engine engine = Engine::automatic;
  std::uint32_t k = 4;                   // a mesh without sides is k x k
  std::uint32_t nodes = 8;               // attached HCAs; [[node]] tables, if any, must be as many
  std::uint32_t nodes_per_router = 1;    // grids: HCAs at each router
  std::uint32_t links_per_neighbor = 2;  // fat_mesh
  std::uint32_t link_mbps = 400;
  std::uint32_t flit_bits = 128;
  std::uint32_t num_vcs = 16;
  std::uint32_t vc_buf_size = 10;          // flits
  std::uint32_t threads = 1;               // that step the routers
  std::uint32_t alloc_iters = 2;           // rounds of the crossbar's allocator in a cycle
  std::uint32_t packet_size = 40;          // flits of a full RC packet
  std::uint32_t control_packet_size = 10;  // flits of a probe, answer or release
  bool pass_through = false;               // data crosses at once: no flits, links without a rate
  std::uint32_t link_delay = 1;            // cycles
  std::uint32_t recovery_cycles = 32;      // routing recovery: waiting until the token may be taken
  std::uint64_t seed = 1;

  std::uint64_t link_bps() const { return std::uint64_t{link_mbps} * 1'000'000; }
  CycleTime cycle_time() const {
    return {static_cast<std::uint64_t>(flit_bits) * 1'000'000 / link_mbps};
  }
};

struct VlWeight {
  Vl vl = 0;
  std::uint8_t weight = 0;  // units of 64 bytes, as in the IBA's VL arbitration tables
  friend bool operator==(const VlWeight&, const VlWeight&) = default;
};

// [qos], in opensm's words where it has them.
struct QosConfig {
  Scheduler scheduler = Scheduler::fgvc;
  HcaScheduler hca_scheduler = HcaScheduler::router;
  std::uint32_t block_flits = 1;
  bool block_waits = false;  // a block keeps its port, whether its lane can send or not
  Counters counters = Counters::epoch;
  bool strict_classes = false;  // best effort goes where nobody else can
  bool control_first = true;    // lanes of control go before all others
  Frame frame = Frame::small;
  Pointer pointer = Pointer::fast;
  std::uint32_t qos_high_limit = 255;    // 255: high priority without limit
  std::vector<VlWeight> qos_vlarb_high;  // opensm: "0:64,1:32"; empty: from admission
  std::vector<VlWeight> qos_vlarb_low;
  bool qos_sl2vl_given = false;  // else a service level spreads over its class's lanes
  std::array<Vl, 16> qos_sl2vl{};
  std::array<TrafficClass, 16> sl_class{};             // class of each service level
  std::array<std::uint16_t, kClassCount> class_vls{};  // lanes of each class, one bit each

  // The lanes that a service level may use: never empty.
  std::uint16_t lanes_of_sl(std::uint8_t sl) const {
    if (qos_sl2vl_given) return static_cast<std::uint16_t>(1u << qos_sl2vl[sl & 15]);
    return class_vls[static_cast<std::size_t>(sl_class[sl & 15])];
  }
};

// [controls]
struct ControlsConfig {
  bool admission = true;
  bool congestion_control = true;              // off: no scheme at all
  Congestion congestion = Congestion::credit;  // scheme for best effort
  // vct1, vct2: how routers tell sources, when they do, and what these make of it.
  NoticeWay notice = NoticeWay::instant;
  std::uint32_t vct_threshold = 2;  // occupied buffers of a lane
  std::uint32_t vct_history = 4;    // headers
  std::uint32_t vct_period = 16;    // routings
  std::uint32_t vct_step = 32;      // cycles
  std::uint32_t vct_timeout = 64;   // cycles
  std::uint32_t vct_messages = 1;   // injected
  VctCounts vct_counts = VctCounts::held;
  std::uint32_t mark_from = 4;  // packets for one output
  std::uint32_t mark_all = 16;
  std::uint32_t ccti_increase = 1;  // entries of the table
  std::uint32_t ccti_limit = 127;   // the last one
  double ccti_timer_us = 153.6;
  double dcqcn_notice_us = 50;  // a notice about a flow in so long at most
  double dcqcn_timer_us = 55;
  double dcqcn_gain = 1.0 / 256;
  double dcqcn_rate_ai = 0.001;  // parts of the link
  double dcqcn_rate_hai = 0.01;
  CompletionQueues completion_queues = CompletionQueues::global;  // credits: of whom together
  bool power_control = true;
  PeakPower peak_power = PeakPower::scheme;
  PowerBooking power_booking = PowerBooking::routers;
  double reservable_share = 0.9;             // of each link's bandwidth that admission may book
  std::uint32_t best_effort_credits = 200;   // C_b per HCA
  std::uint32_t hca_buffer_packets = 13107;  // M: 8 MiB of 640 B
  double power_cap_w = 0;                    // 0: the power of the whole network at power_cap_load
  double power_cap_load = 0.74;              // of every HCA link
  double power_rt_share = 0.68;              // of the cap; the rest is best effort's
};

// [hca]
struct HcaConfig {
  // What the device says it is. No vendor's number, as software devices have it: programs that know
  // a vendor go on to call its own library (perftest of 2026, libmlx5).
  std::uint32_t vendor_id = 0xffffff;
  std::uint32_t vendor_part_id = 4099;
  std::uint32_t launch_horizon_us = 10'000;  // packets go to the wire half so far ahead at most
  std::uint32_t mtu = 2048;                  // active MTU, bytes
  bool crc_on_host = false;                  // also in packets that never leave a host
  std::string device = "flitnet0";
  LinkLayer link_layer = LinkLayer::infiniband;  // as programs see it
  HcaProcess process = HcaProcess::automatic;    // who runs an HCA; read by who starts processes
};

// [clock]
struct ClockConfig {
  ClockMode mode = ClockMode::elastic;
  std::uint32_t hard_limit_ms = 100;  // real: lag beyond it ends the run
  std::uint32_t slack_ms = 20;        // elastic: lag up to it is caught up
  std::uint32_t follow_ms = 4;        // time runs at most this far ahead of an hcad; 0: any
  std::uint32_t quantum_us = 100;     // emulated time of one turn of the loop at most
};

// [attach]
struct AttachConfig {
  AttachKind kind = AttachKind::shm;
  std::string listen = "0.0.0.0:4791";  // udp, ethdev: where fabricd receives
  std::string fabric;                   // udp, ethdev: where hcads send; empty: `listen`
  std::string key_file;                 // key of the cluster; empty: made in the run directory
  std::uint32_t mtu = 1500;             // IP packets of the path
  std::string ethdev;                   // DPDK device arguments, e.g. "net_af_packet0,iface=veth0"
  std::uint32_t heartbeat_ms = 50;
  std::uint32_t dead_after_ms = 700;  // silence after which a peer is gone: below one second
};

// [[node]]
struct NodeConfig {
  std::string name;
  // Its address for rdma_cm (empty: 127.1.0.1 and up); udp, ethdev: where its hcad is (empty:
  // learned when it says hello).
  std::string ip;
  // A digit of base 36 for each node: links between routers on the way there. Empty: by the
  // topology's sizes.
  std::string links_to;
};

struct Config {
  NetworkConfig network;
  QosConfig qos;
  ControlsConfig controls;
  HcaConfig hca;
  ClockConfig clock;
  AttachConfig attach;
  EnergyTable energy;             // [energy]; flit_bits follows network.flit_bits
  std::vector<NodeConfig> nodes;  // network.nodes of them

  // Defaults: nodes n0 ... n7 on one router.
  Config();

  // A file describes a live cluster: at most kNodesMax nodes.
  static Result<Config> load(const std::string& path);
  // `source` names the text in messages.
  static Result<Config> parse(std::string_view toml, std::string_view source = "configuration");
  // Complete and resolved TOML; parse() of it gives the same Config.
  std::string to_toml() const;

  // Cut-through routers take packets in whole, and packets come to them.
  bool buffers_hold_packets() const {
    return network.router == Router::vct && !network.pass_through;
  }
  // The longest UD message, one of the sizes of an MTU, 256 at least: hca.mtu, but what the buffers
  // of routers that take packets in whole hold. Connections cut their messages to packet_size.
  std::uint32_t datagram_bytes() const;
  // What the buffers of routers that take packets in whole hold; 0 of all others.
  std::uint32_t buffer_bytes() const;
  // Flits of network.vc_buf_size that a running cluster needs for its datagrams of 256 bytes.
  std::uint32_t buffer_flits_least() const;

  // Links between routers on the way from node a to node b.
  std::uint32_t links_between(std::size_t a, std::size_t b) const;
  // Parts that the network has as a node sees it: quarters of a grid of two dimensions; 1
  // elsewhere.
  std::uint32_t quadrants() const;
  // In which of them node b is, seen from node a.
  std::uint32_t quadrant(std::size_t a, std::size_t b) const;
  // The cap in watts that the configuration means: power_cap_w or, if that is 0, every HCA sending
  // power_cap_load of its link to uniform destinations.
  double power_cap_w() const;
  // Peak power is kept by HCAs and admission (ACP section 5), or by the routers (PowerHerd).
  bool power_scheme() const {
    return controls.power_control && controls.peak_power == PeakPower::scheme;
  }
  bool power_herd() const {
    return controls.power_control && controls.peak_power == PeakPower::powerherd;
  }
  // What admission may book of a link, at HCAs and routers alike.
  std::uint64_t reservable_bps() const {
    const double bps = static_cast<double>(network.link_bps()) * controls.reservable_share;
    return static_cast<std::uint64_t>(bps + 0.5);
  }
  double best_effort_power_w() const { return power_cap_w() * (1 - controls.power_rt_share); }
  double real_time_power_w() const { return power_cap_w() * controls.power_rt_share; }
  // Index of a node by name; -1: there is none.
  int node_index(std::string_view name) const;
};

std::string_view schema_json();  // schema.json as it is in the source

std::string_view name_of(Topology value);
std::string_view name_of(Routing value);
std::string_view name_of(Scheduler value);
std::string_view name_of(Router value);
std::string_view name_of(Crossbar value);
std::string_view name_of(FlowControl value);
std::string_view name_of(Engine value);
std::string_view name_of(Counters value);
std::string_view name_of(Frame value);
std::string_view name_of(Pointer value);
std::string_view name_of(AttachKind value);
std::string_view name_of(LinkLayer value);
std::string_view name_of(HcaProcess value);
std::string_view name_of(Congestion value);
Result<Congestion> congestion_of(std::string_view name);
// Whether its sources act by what routers see; HCAs have that from a page on the fabric's host.
constexpr bool hears_of_routers(Congestion scheme) {
  return scheme != Congestion::credit && scheme != Congestion::none;
}
std::string_view name_of(CompletionQueues value);
std::string_view name_of(NoticeWay value);
std::string_view name_of(VctCounts value);
std::string_view name_of(PeakPower value);
std::string_view name_of(PowerBooking value);

}  // namespace emu
