#include "hca/daemon/node.h"

#include <unistd.h>

#include <fmt/core.h>

#include "emu/base/json_line.h"
#include "emu/base/log.h"
#include "emu/clock/host.h"
#include "emu/config/agreed.h"
#include "emu/ring/start.h"
#include "emu/wire/key.h"
#include "hca/attach/shm.h"
#include "hca/attach/udp.h"
#include "hca/daemon/hosts.h"
#include "hca/daemon/options.h"
#include "hca/daemon/set.h"

namespace hca {

namespace {
constexpr std::size_t kBurst = 512;  // deliveries, injected events, answers taken in one turn

// Behind a host that forwards ports both may be right.
std::string port_doubt(const emu::AttachConfig& attach) {
  const auto port = [](const std::string& address) {
    return address.substr(address.rfind(':') + 1);
  };
  if (attach.fabric.empty() || port(attach.fabric) == port(attach.listen)) return "";
  return fmt::format(" attach.listen has another port: {}", attach.listen);
}

}  // namespace

Node::Node(const std::string& run_dir, const emu::Config& config, emu::NodeId node)
    : config_(config),
      options_(host_options(config, node)),
      side_band_(run_dir + "/fabric.state", config, node),
      received_(kBurst),
      injected_(kBurst),
      answers_(64) {
  arrivals_.reserve(kBurst);
}

Node::~Node() {
  emu::log_to(log_);
  if (port_ != nullptr) port_->bring_home();  // programs' memory goes first
  emu::log_info("ends");
}

emu::Result<std::unique_ptr<Node>> Node::make(const std::string& run_dir, const emu::Config& config,
                                              emu::NodeId node, emu::Lending* lending) {
  const std::string& name = config.nodes[node].name;
  const std::string folder = "nodes/" + name;
  if (auto done = emu::make_run_directories(run_dir, {&folder, 1}); !done)
    return std::unexpected(done.error());
  auto pid_file = emu::PidFile::acquire(run_dir + "/" + folder + "/hcad.pid");
  if (!pid_file) return std::unexpected(pid_file.error());
  if (auto done = emu::open_log(run_dir + "/log/hcad-" + name + ".log", "hcad"); !done)
    return std::unexpected(done.error());
  std::unique_ptr<Node> made(new Node(run_dir, config, node));
  made->pid_file_ = std::move(*pid_file);
  made->log_ = emu::current_log();
  if (auto done = made->open(run_dir, lending); !done) {
    emu::log_error(done.error().message);
    return std::unexpected(done.error());
  }
  made->page()->waiters_look = lending != nullptr ? 0 : 1;
  emu::log_info(fmt::format("node {} serves", name));
  return made;
}

emu::Result<void> Node::open(const std::string& run_dir, emu::Lending* lending) {
  const std::string dir = run_dir + "/nodes/" + config_.nodes[options_.node].name;
  auto node_page = emu::Region::create("flitnet-node", sizeof(NodePage));
  if (!node_page) return std::unexpected(node_page.error());
  node_page_ = std::move(*node_page);
  fill_node_page(config_, options_, *page());
  if (auto done = attach(run_dir, lending); !done) return done;
  port_ = std::make_unique<AttachmentPort>(*attachment_, config_.network.pass_through, same_host());
  auto control = Control::open(dir + "/hcad.sock", node_page_, memory_);
  if (!control) return std::unexpected(control.error());
  control_ = std::move(*control);
  options_.first_connection = emu::host_now_ns();  // one that no former life has named
  host_ = std::make_unique<Host>(options_, memory_, *port_, *control_);
  side_band_.follow_scheme(*host_);
  control_->set_host(*host_);
  control_->set_nodes(config_.nodes);
  cm_ = std::make_unique<CmService>(config_, options_);
  cm_->set_host(*host_);
  control_->set_cm(*cm_);
  if (!options_.roce) {
    mads_ = std::make_unique<MadService>(*host_, config_, options_);
    control_->set_mads(*mads_);
  }
  if (auto written = write_hosts(dir + "/hosts", config_); !written) return written;
  auto publisher = Publisher::open(run_dir, config_, options_.node);
  if (!publisher) return std::unexpected(publisher.error());
  publisher_ = std::make_unique<Publisher>(std::move(*publisher));
  control_->set_counters([this](std::string_view file) {
    publish();
    return publisher_->port_file(file);
  });
  auto ctl = emu::ControlServer::open(
      dir + "/hcad.ctl", [this](const std::string& request) { return answer(request); });
  if (!ctl) return std::unexpected(ctl.error());
  ctl_ = std::move(*ctl);
  started_ns_ = emu::host_now_ns();
  return {};
}

emu::Result<void> Node::attach(const std::string& run_dir, emu::Lending* lending) {
  const std::string& name = config_.nodes[options_.node].name;
  if (config_.attach.kind == emu::AttachKind::shm) {
    attachment_ = make_shm_attachment({run_dir, name, lending});
    return {};
  }
  UdpAttachOptions options;
  options.fabric = config_.attach.fabric.empty() ? config_.attach.listen : config_.attach.fabric;
  options.doubt = port_doubt(config_.attach);
  options.node_name = name;
  // Whoever of a run directory comes first makes its key; another host gets a copy of the file.
  auto key = config_.attach.key_file.empty() ? emu::ensure_key_file(run_dir + "/cluster.key")
                                             : emu::read_key_file(config_.attach.key_file);
  if (!key) return std::unexpected(key.error());
  options.cluster_key = *key;
  options.mtu = config_.attach.mtu;
  options.heartbeat_ns = config_.attach.heartbeat_ms * std::uint64_t{1'000'000};
  options.dead_ns = config_.attach.dead_after_ms * std::uint64_t{1'000'000};
  options.terms = emu::Terms{options_.node, emu::agreed_settings(config_)};
  auto made = make_udp_attachment(options);
  if (!made) return std::unexpected(made.error());
  attachment_ = std::move(*made);
  return {};
}

std::string Node::answer(const std::string& request) {
  const auto fields = emu::parse_json_line(request);
  emu::JsonWriter j;
  if (!fields || !fields->contains("cmd")) {
    j.open().field("ok", false).field("error", "no 'cmd': status or stop").close();
    return j.text();
  }
  const std::string& cmd = fields->at("cmd");
  if (cmd == "status") return status();
  if (cmd == "stop") {
    stop_asked_ = true;
    j.open().field("ok", true).close();
    return j.text();
  }
  if (cmd == "set") {
    for (const auto& [key, value] : *fields) {
      if (key == "cmd") continue;
      if (auto done = set_control(*host_, key, value, same_host()); !done) {
        return j.open().field("ok", false).field("error", done.error().message).close().text();
      }
      emu::log_info(fmt::format("{}: {}", key, value));
      side_band_.follow_scheme(*host_);
    }
    return j.open().field("ok", true).close().text();
  }
  j.open().field("ok", false);
  j.field("error", fmt::format("unknown cmd '{}': status, set or stop", cmd));
  return j.close().text();
}

std::string Node::status() const {
  emu::JsonWriter j;
  const HostCounters& counters = host_->counters();
  const bool up = attachment_->state() == AttachState::attached;
  j.open().field("ok", true).field("pid", static_cast<std::int64_t>(::getpid()));
  j.field("node", config_.nodes[options_.node].name).field("attached", up);
  j.field("state", up ? "attached" : "down").field("reason", attachment_->reason());
  j.field("link_down", attachment_->link_down());
  j.field("sessions", session_).field("lid", static_cast<int>(emu::lid_of(options_.node)));
  const HostOptions& options = host_->options();
  j.field("mtu_bytes", options.datagram_bytes);
  j.field("payload_bytes", connection_payload(options, options.datagram_bytes, false));
  j.field("grh_bytes", options.roce ? kGrhBytes : 0U);
  j.field("address", address_text(node_addresses(config_)[options_.node]));
  j.field("cm_ids", static_cast<std::uint64_t>(cm_->cm().ids()));
  j.field("cm_listeners", static_cast<std::uint64_t>(cm_->cm().listeners()));
  j.field("emulated_ns", options_.cycle_time.ns(now_));
  j.field("clients", static_cast<std::uint64_t>(control_->client_count()));
  const ObjectCounts objects = host_->objects();
  j.open("objects").field("pds", objects.pds).field("mrs", objects.mrs);
  j.field("cqs", objects.cqs).field("srqs", objects.srqs).field("qps", objects.qps).close();
  j.field("reserved_bps", counters.reserved_bps);
  j.field("congestion", host_->congestion());
  j.field("completion_queues",
          kCqLayoutNames[static_cast<std::size_t>(host_->options().completion_queues)]);
  j.field("retransmits", counters.packets_retransmitted);
  j.field("payloads_lent", counters.payloads_lent);
  return j.close().text();
}

}  // namespace hca
