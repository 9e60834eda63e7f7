#include "fabric/daemon/fabric.h"

#include <utility>

#include "emu/base/check.h"
#include "emu/base/log.h"
#include "emu/clock/host.h"
#include "fabric/daemon/look.h"
#include "fabric/daemon/spec.h"
#include "fabric/daemon/subnet_spec.h"
#include "fabric/port/remote.h"
#include "fabric/port/shm.h"

namespace fabric {

Fabric::Fabric(const emu::Config& config) : config_(config) {}
Fabric::~Fabric() = default;

emu::Result<std::unique_ptr<Fabric>> Fabric::make(const std::string& run_dir,
                                                  const emu::Config& config, emu::PidFile pid_file,
                                                  emu::Lending* lending) {
  std::unique_ptr<Fabric> fabric(new Fabric(config));
  fabric->memory_.set_lending(lending);
  fabric->pid_file_ = std::move(pid_file);
  fabric->run_dir_ = run_dir;
  if (auto done = fabric->start_clock(run_dir); !done) return std::unexpected(done.error());
  if (auto done = fabric->make_network(); !done) return std::unexpected(done.error());
  if (auto done = fabric->open_side_band(run_dir); !done) return std::unexpected(done.error());
  if (auto done = fabric->open_ports(run_dir); !done) return std::unexpected(done.error());
  auto publisher = Publisher::make(run_dir, config, *fabric->network_);
  if (!publisher) return std::unexpected(publisher.error());
  fabric->publisher_ = std::move(*publisher);
  auto control = emu::ControlServer::open(
      run_dir + "/fabricd.ctl",
      [raw = fabric.get()](const std::string& request) { return raw->answer(request); });
  if (!control) return std::unexpected(control.error());
  fabric->control_ = std::move(*control);

  for (const auto& port : fabric->ports_) {
    if (port->wait_fds().empty()) fabric->polled_.push_back(port.get());
  }
  return fabric;
}

emu::Result<void> Fabric::start_clock(const std::string& run_dir) {
  const emu::PaceOptions options = pace_options(config_);
  auto clock = emu::ClockWriter::open(run_dir + "/clock.page", options.cycle_time, options.mode);
  if (!clock) return std::unexpected(clock.error());
  clock_ = std::make_unique<emu::ClockWriter>(std::move(*clock));
  start_ns_ = emu::host_now_ns();
  pace_ = std::make_unique<emu::Pace>(options, clock_->start_cycle(), start_ns_);
  return {};
}

emu::Result<void> Fabric::make_network() {
  const NetworkSpec spec = network_spec(config_, clock_->start_cycle());
  auto network = Network::make(spec, &controls_);
  if (!network) return std::unexpected(network.error());
  network_ = std::move(*network);
  if (network_->nodes() != static_cast<int>(config_.nodes.size())) {
    return emu::fail("the configuration names {} nodes, its topology has {}", config_.nodes.size(),
                     network_->nodes());
  }
  std::vector<int> ports;
  for (int r = 0; r < network_->routers(); ++r) {
    ports.push_back(network_->ports(static_cast<emu::RouterId>(r)));
  }
  admission_ = std::make_unique<Admission>(ports, book_limits(config_, network_->routers()),
                                           config_.controls.admission);
  for (int r = 0; r < network_->routers(); ++r) {
    const auto router = static_cast<emu::RouterId>(r);
    admission_->set_router_ports(router, router_ports(*network_, router));
  }
  controls_.connect(admission_.get());
  arbitration_ = std::make_unique<Arbitration>(config_, *network_);
  EdgeOptions options;
  options.cycle_time = config_.network.cycle_time();
  options.vtick_of_lane = spec.lane_vtick;
  options.pass_through = config_.network.pass_through;
  options.flit_bits = config_.network.flit_bits;
  edge_ = std::make_unique<Edge>(*network_, memory_, controls_, options);
  links_ = std::make_unique<Links>(config_, *network_, *edge_);
  subnet_ = std::make_unique<SubnetAgent>(
      subnet_spec(config_, spec), *network_,
      [this](emu::NodeId node) { return edge_->is_attached(node) && !links_->node_down(node); },
      [this](LinkEnd end) { return links_->downs(end); },
      [this](emu::NodeId node) { return edge_->multicasts(node); });
  edge_->answer_by(subnet_.get());
  power_ = std::make_unique<PowerWindows>(config_.energy, options.cycle_time, config_.power_cap_w(),
                                          network_->now(),
                                          static_cast<std::size_t>(network_->routers()));
  return {};
}

emu::Result<void> Fabric::open_side_band(const std::string& run_dir) {
  auto page = emu::StateWriter::open(run_dir + "/fabric.state");
  if (!page) return std::unexpected(page.error());
  side_band_ = std::make_unique<emu::StateWriter>(std::move(*page));
  tell_ways();
  return set_congestion(config_.controls.congestion);
}

void Fabric::tell_ways() {
  for (int n = 0; n < network_->nodes(); ++n) {
    const auto node = static_cast<emu::NodeId>(n);
    for (int d = 0; d < network_->nodes(); ++d) {
      const auto dest = static_cast<emu::NodeId>(d);
      side_band_->set_way(node, dest, useful_ports(*network_, node, dest),
                          network_->hops(node, dest) - 1);
    }
  }
  side_band_->ways_told();
}

emu::Result<void> Fabric::set_link(const std::string& name, const std::string& state) {
  if (state != "up" && state != "down") return emu::fail("link {}: up or down", name);
  const auto link = links_->parse(name);
  if (!link) return std::unexpected(link.error());
  if (auto done = links_->set(*link, state == "up"); !done) return done;
  emu::log_info(fmt::format("link {}: {}", name, state));
  if (!link->is_node()) {
    tell_ways();
  } else if (state == "down") {
    for (const auto& port : ports_) port->cut(link->node, "its link is down");
  }
  return {};
}

// To a node that wants to attach by a port, of which `other` is the other one.
emu::Refusal Fabric::objection(emu::NodeId node, const Port* other) const {
  if (links_->node_down(node)) return emu::Refusal::link_down;
  const bool taken = other != nullptr && other->attached(node);
  return taken ? emu::Refusal::busy : emu::Refusal::none;
}

emu::Result<void> Fabric::set_congestion(emu::Congestion scheme) {
  auto made = Notices::make_wanted(config_, scheme, *network_);
  if (!made) {
    if (notices_ != nullptr) notices_->listen();  // as before
    return std::unexpected(made.error());
  }
  if (notices_ != nullptr) noticed_ = notices_->counts();
  notices_.reset();
  notices_ = std::move(*made);
  if (notices_ != nullptr) {
    notices_->count_on_from(noticed_);
    notices_->listen();
  }
  state_wanted_ = needs_state(emu::name_of(scheme));
  config_.controls.congestion = scheme;
  return {};
}

emu::Result<void> Fabric::open_ports(const std::string& run_dir) {
  const EdgeRules rules = edge_rules(config_);
  // A node attaches by one way at a time, whichever came first. The remote port first: it makes
  // pools that nodes of the shm port must learn of.
  auto remote = open_remote_port(config_.attach, rules, run_dir, memory_,
                                 [this](emu::NodeId node) { return objection(node, local_); });
  if (!remote) return std::unexpected(remote.error());
  remote_ = remote->get();
  if (remote_ != nullptr) ports_.push_back(std::move(*remote));

  ShmPortOptions shm;
  shm.socket_path = run_dir + "/fabric.sock";
  shm.slots_per_node = kSlotsPerNode;
  shm.rules = rules;
  shm.objection = [this](emu::NodeId node) { return objection(node, remote_); };
  shm.follow.window =
      config_.network.cycle_time().cycle_at(emu::EmuNs{config_.clock.follow_ms} * 1'000'000);
  auto port = ShmPort::open(shm, memory_);
  if (!port) return std::unexpected(port.error());
  local_ = port->get();
  ports_.push_back(std::move(*port));
  return {};
}

}  // namespace fabric
