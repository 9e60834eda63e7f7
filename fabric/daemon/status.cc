// What fabricd answers on its control socket.
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <sstream>

#include "emu/base/json_line.h"
#include "emu/base/log.h"
#include "emu/clock/host.h"
#include "fabric/daemon/fabric.h"
#include "fabric/daemon/spec.h"

namespace fabric {

namespace {

std::string error_line(const std::string& what) {
  emu::JsonWriter j;
  j.open().field("ok", false).field("error", what).close();
  return j.text();
}

std::string ok_line() {
  emu::JsonWriter j;
  j.open().field("ok", true).close();
  return j.text();
}

}  // namespace

std::string Fabric::answer(const std::string& request) {
  auto fields = emu::parse_json_line(request);
  if (!fields) return error_line(fields.error().message);
  const auto cmd = fields->find("cmd");
  if (cmd == fields->end())
    return error_line("no 'cmd': status, bookings, links, capture, set or stop");
  if (cmd->second == "status") return status();
  if (cmd->second == "bookings") return bookings();
  if (cmd->second == "links") return links();
  if (cmd->second == "capture") return capture(*fields);
  if (cmd->second == "set") return set(*fields);
  if (cmd->second == "stop") {
    emu::log_info("asked to stop");
    stop_asked_ = true;
    return ok_line();
  }
  return error_line(
      fmt::format("unknown cmd '{}': status, bookings, links, capture, set or stop", cmd->second));
}

std::string Fabric::set(const std::map<std::string, std::string>& fields) {
  if (const auto link = fields.find("link"); link != fields.end()) {
    const auto state = fields.find("state");
    auto done = set_link(link->second, state == fields.end() ? "" : state->second);
    return done ? ok_line() : error_line(done.error().message);
  }
  if (const auto scheme = fields.find("congestion"); scheme != fields.end()) {
    const auto known = emu::congestion_of(scheme->second);
    if (!known) return error_line(known.error().message);
    if (auto done = set_congestion(*known); !done) return error_line(done.error().message);
    return ok_line();
  }
  for (const std::string key : {"admission", "power_control"}) {
    const auto found = fields.find(key);
    if (found == fields.end()) continue;
    const bool on = found->second == "true";
    if (!on && found->second != "false") return error_line(key + ": true or false");
    if (key == "admission") {
      admission_->set_enabled(on);
    } else if ((config_.network.pass_through && on) ||
               config_.controls.peak_power != emu::PeakPower::scheme) {
      return error_line(
          "power_control: not in a running network that keeps to its cap otherwise, or to none "
          "(controls.peak_power, network.pass_through)");
    } else {
      config_.controls.power_control = on;
      admission_->set_power_control(config_.power_scheme());
    }
    emu::log_info(fmt::format("{}: {}", key, found->second));
    return ok_line();
  }
  return error_line("set: only 'admission', 'congestion', 'link' and 'power_control' can be set");
}

// Makes the ring for a reader, who comes soon or not at all.
std::string Fabric::capture(const std::map<std::string, std::string>& fields) {
  if (capture_ && capture_->read_by_somebody(emu::host_now_ns()))
    return error_line("capture: one is running already");
  std::uint64_t wanted = 0;
  const auto names = fields.find("nodes");
  for (std::size_t n = 0; n < config_.nodes.size(); ++n) {
    if (names == fields.end() || names->second.empty()) wanted |= std::uint64_t{1} << n;
  }
  std::istringstream list(names == fields.end() ? "" : names->second);
  for (std::string name; std::getline(list, name, ',');) {
    const auto found = std::ranges::find(config_.nodes, name, &emu::NodeConfig::name);
    if (found == config_.nodes.end())
      return error_line(fmt::format("capture: the cluster has no node '{}'", name));
    wanted |= std::uint64_t{1} << (found - config_.nodes.begin());
  }
  edge_->watch(nullptr);
  capture_.reset();
  const std::string path = run_dir_ + "/capture.ring";
  auto made = emu::CaptureWriter::open(path, config_.network.cycle_time(), wanted);
  if (!made) return error_line(made.error().message);
  capture_.emplace(std::move(*made));
  edge_->watch(&*capture_);
  emu::JsonWriter j;
  return j.open().field("ok", true).field("ring", path).close().text();
}

std::string Fabric::links() const {
  emu::JsonWriter j;
  j.open().field("ok", true);
  links_->write(j);
  return j.close().text();
}

std::string Fabric::status() const {
  const emu::CycleTime cycle_time = config_.network.cycle_time();
  emu::JsonWriter j;
  j.open().field("ok", true).field("pid", static_cast<std::int64_t>(::getpid()));
  j.field("uptime_s", static_cast<double>(emu::host_now_ns() - start_ns_) * 1e-9);
  j.field("link_mbps", config_.network.link_mbps).field("flit_bits", config_.network.flit_bits);

  j.open("clock");
  j.field("mode", emu::kClockModeNames[static_cast<std::size_t>(config_.clock.mode)]);
  j.field("cycle", network_->now()).field("emulated_ns", cycle_time.ns(network_->now()));
  j.field("dilation", pace_->dilation().overall);
  j.field("dilation_window", pace_->dilation().window);
  j.field("lag_us", static_cast<double>(pace_->lag_ns()) * 1e-3);
  j.field("lag_us_p99", static_cast<double>(pace_->lag_quantile_ns(0.99)) * 1e-3);
  j.field("lag_us_max", static_cast<double>(pace_->lag_max_ns()) * 1e-3);
  j.field("held_us", static_cast<double>(pace_->held_ns()) * 1e-3);
  j.field("given_up_us", static_cast<double>(pace_->given_up_ns()) * 1e-3).close();

  j.open_array("nodes");
  for (std::size_t i = 0; i < config_.nodes.size(); ++i) {
    const auto node = static_cast<emu::NodeId>(i);
    j.open().field("name", config_.nodes[i].name).field("lid", unsigned{emu::lid_of(node)});
    j.field("attached", edge_->is_attached(node)).field("sessions", sessions_[i]);
    if (port_of_node_[i] != nullptr) {
      const AttachCounters& c = port_of_node_[i]->counters(node);
      j.field("packets_in", c.packets_in).field("packets_out", c.packets_out);
      j.field("wakeups", c.wakeups).field("violations", c.violations);
      j.field("backlog_max", c.backlog_max).field("given_up", c.given_up);
    }
    j.field("router", unsigned{network_->router_of(node)}).close();
  }
  j.close_array();

  j.open("classes");
  for (std::size_t i = 0; i < emu::kClassCount; ++i) {
    const ClassStats& stats = edge_->classes()[i];
    const emu::HistogramSummary latency = stats.latency_ns.summary();
    j.open(emu::kClassNames[i]).field("packets", stats.packets);
    j.field("latency_us_mean", latency.mean * 1e-3).field("latency_us_p99", latency.p99 * 1e-3);
    j.field("queueing_us_mean", stats.queueing_ns.summary().mean * 1e-3).close();
  }
  j.close();

  const emu::PowerMeter& meter = power_->meter();
  j.open("power").field("cap_w", meter.cap_w()).field("last_w", meter.last_w());
  j.field("mean_w", meter.mean_w()).field("max_w", meter.max_w());
  j.field("windows_above_cap", meter.windows_above_cap()).close();

  j.field("in_flight", edge_->in_flight()).field("undeliverable", edge_->undeliverable());
  j.field("malformed_datagrams", edge_->malformed());
  j.field("stuck", network_->stuck());
  j.field("links_down", static_cast<std::uint64_t>(links_->down_count()));
  j.field("congestion", emu::name_of(config_.controls.congestion));
  j.field("power_control", config_.controls.power_control);
  j.field("admission", admission_->enabled()).close();
  return j.text();
}

std::string Fabric::bookings() const {
  emu::JsonWriter j;
  j.open().field("ok", true).field("admission", admission_->enabled()).open_array("routers");
  for (int r = 0; r < network_->routers(); ++r) {
    const auto router = static_cast<emu::RouterId>(r);
    const Book& book = admission_->book(router);
    j.open().field("router", r).field("bookings", book.bookings());
    j.field("power_w", book.used_power_w()).open_array("ports");
    for (int q = 0; q < book.ports(); ++q) {
      const auto port = static_cast<emu::PortId>(q);
      j.open().field("port", q).field("out_bps", book.used_out_bps(port));
      j.field("in_bps", book.used_in_bps(port)).close();
    }
    j.close_array().close();
  }
  j.close_array().close();
  return j.text();
}

}  // namespace fabric
