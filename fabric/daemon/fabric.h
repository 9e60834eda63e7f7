// fabricd put together: ports, wire halves, routers, clock, books, meters. Made once by main, run
// until it is told to stop. loop.cc is what it does all day; flitnetd has nodes beside it.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "emu/base/log.h"
#include "emu/base/result.h"
#include "emu/clock/pace.h"
#include "emu/clock/page.h"
#include "emu/config/config.h"
#include "emu/daemon/daemon.h"
#include "emu/ring/control_server.h"
#include "emu/ring/fd.h"
#include "emu/ring/patience.h"
#include "emu/ring/pid_file.h"
#include "emu/wire/state_page.h"
#include "fabric/admit/admission.h"
#include "fabric/daemon/arbitration.h"
#include "fabric/daemon/edge.h"
#include "fabric/daemon/links.h"
#include "fabric/daemon/notices.h"
#include "fabric/daemon/power.h"
#include "fabric/daemon/publish.h"
#include "fabric/port/packets.h"
#include "fabric/port/port.h"
#include "fabric/router/network.h"
#include "fabric/subnet/agent.h"

namespace fabric {

class Fabric : public emu::Daemon {
 public:
  // The run directory exists and `pid_file` holds it. `lending`: of nodes in this process, or null.
  static emu::Result<std::unique_ptr<Fabric>> make(const std::string& run_dir,
                                                   const emu::Config& config, emu::PidFile pid_file,
                                                   emu::Lending* lending = nullptr);
  ~Fabric() override;

  // emu::Daemon
  emu::Turn turn(std::uint64_t host_ns) override;
  bool ends() const override { return stop_asked_ || pace_->hard_limit_exceeded(); }
  std::uint64_t fall_asleep(std::uint64_t host_ns) override;
  void wake_up(std::span<const int> rung) override;
  std::vector<int> wake_fds() const override;
  // Of a run that ended: an error if the clock's hard limit was exceeded.
  emu::Result<void> outcome() const;

 private:
  explicit Fabric(const emu::Config& config);
  emu::Result<void> open_ports(const std::string& run_dir);
  emu::Result<void> start_clock(const std::string& run_dir);
  emu::Result<void> make_network();

  // The turns of the loop, in order.
  void service(std::uint64_t host_ns);
  void follow(std::uint64_t host_ns);
  void skip_idle(std::uint64_t host_ns);
  void receive(std::uint64_t host_ns);
  bool step(std::uint64_t host_ns);  // true: ahead of time
  void flush();
  emu::Turn rest(std::uint64_t host_ns);
  void handle_events(Port& port);
  void publish();
  emu::Result<void> open_side_band(const std::string& run_dir);
  void tell_state();
  void tell_notices();
  emu::Result<void> set_congestion(emu::Congestion scheme);
  void tell_ways();
  emu::Result<void> set_link(const std::string& name, const std::string& state);
  emu::Refusal objection(emu::NodeId node, const Port* other) const;
  std::string answer(const std::string& request);
  std::string set(const std::map<std::string, std::string>& fields);
  std::string links() const;
  std::string capture(const std::map<std::string, std::string>& fields);
  std::string status() const;
  std::string bookings() const;

  emu::Config config_;
  PacketMemory memory_;
  ControlPackets controls_;
  std::unique_ptr<Admission> admission_;
  std::unique_ptr<Network> network_;
  std::unique_ptr<Arbitration> arbitration_;
  std::vector<std::unique_ptr<Port>> ports_;
  Port* local_ = nullptr;            // of ports_
  Port* remote_ = nullptr;           // of ports_; null: only this host
  std::vector<const Port*> polled_;  // of ports_: nothing wakes us for their packets
  std::unique_ptr<Edge> edge_;
  std::unique_ptr<Links> links_;
  std::unique_ptr<SubnetAgent> subnet_;  // asks edge and links
  std::optional<emu::CaptureWriter> capture_;
  std::string run_dir_;
  std::unique_ptr<emu::ClockWriter> clock_;
  std::unique_ptr<emu::StateWriter> side_band_;
  bool state_wanted_ = false;         // by the congestion scheme in force
  std::unique_ptr<Notices> notices_;  // the same; ends before the network
  Notices::Counts noticed_;           // by those that ended
  std::uint64_t delivered_flits_ = 0;
  std::unique_ptr<emu::Pace> pace_;
  Inbox inbox_;
  emu::Cycle limit_ = emu::kNever;  // of this turn: for whom emulated time waits
  std::uint64_t active_ns_ = 0;     // host time when a packet last came in
  emu::Patience patience_;
  bool looking_ = false;       // the last turn ended without rest
  std::uint64_t idle_ns_ = 0;  // host time of the last turn without packets that expected none
  std::uint64_t serviced_ns_ = 0;
  std::uint64_t clock_state_ns_ = 0;
  std::uint64_t published_ns_ = 0;
  // cold
  std::unique_ptr<PowerWindows> power_;
  std::unique_ptr<Publisher> publisher_;
  std::unique_ptr<emu::ControlServer> control_;
  std::array<const Port*, emu::kNodesMax> port_of_node_{};
  std::array<std::uint64_t, emu::kNodesMax> sessions_{};
  std::uint64_t start_ns_ = 0;
  bool stop_asked_ = false;
  std::string stuck_;  // what the network's watchdog said last
  emu::Log log_ = emu::current_log();
  std::size_t asleep_ = 0;  // ports that know that we sleep
  bool started_ = false;    // the clock runs
  emu::PidFile pid_file_;
};

}  // namespace fabric
