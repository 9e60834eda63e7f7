// One node of the cluster: its HCA's host half, its programs and its way to the fabric, composed.
// main.cc makes one and lets it run (emu/daemon); flitnetd has several.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "emu/base/log.h"
#include "emu/base/result.h"
#include "emu/config/config.h"
#include "emu/daemon/daemon.h"
#include "emu/ring/control_server.h"
#include "emu/ring/patience.h"
#include "emu/ring/pid_file.h"
#include "emu/ring/region.h"
#include "emu/wire/lending.h"
#include "hca/abi/node.h"
#include "hca/attach/attach.h"
#include "hca/daemon/cm_service.h"
#include "hca/daemon/control.h"
#include "hca/daemon/mad_service.h"
#include "hca/daemon/memory.h"
#include "hca/daemon/nap.h"
#include "hca/daemon/port.h"
#include "hca/daemon/publish.h"
#include "hca/daemon/side_band.h"
#include "hca/host/host.h"

namespace hca {

class Node : public emu::Daemon {
 public:
  // Takes the node's folder of the run directory, makes it if need be, and logs into a file of its
  // own.
  // `lending`: the fabric and all other nodes are in this process, too; null: they are not.
  static emu::Result<std::unique_ptr<Node>> make(const std::string& run_dir,
                                                 const emu::Config& config, emu::NodeId node,
                                                 emu::Lending* lending = nullptr);
  ~Node() override;

  // emu::Daemon
  emu::Turn turn(std::uint64_t host_ns) override;
  bool ends() const override { return stop_asked_; }
  std::uint64_t fall_asleep(std::uint64_t host_ns) override;
  void wake_up(std::span<const int> rung) override;
  std::vector<int> wake_fds() const override;

 private:
  Node(const std::string& run_dir, const emu::Config& config, emu::NodeId node);
  emu::Result<void> open(const std::string& run_dir, emu::Lending* lending);
  emu::Result<void> attach(const std::string& run_dir, emu::Lending* lending);

  // The loop's steps, in their order.
  void tell_time();
  void tell_cpu();
  std::size_t receive();
  std::size_t transmit();
  void service(std::uint64_t host_ns, bool busy);
  emu::Turn rest(std::size_t work, std::uint64_t host_ns);

  void publish();
  void notice_session();
  void tell_port(bool up);
  bool same_host() const { return config_.attach.kind == emu::AttachKind::shm; }
  std::uint64_t sleep_limit_ns(std::uint64_t idle_ns) const;
  emu::Cycle next_look(std::uint64_t limit_ns) const;
  std::string answer(const std::string& request);
  std::string status() const;
  NodePage* page() const { return reinterpret_cast<NodePage*>(node_page_.data()); }

  emu::Config config_;
  HostOptions options_;
  emu::Region node_page_;
  ProcessMemory memory_;
  std::unique_ptr<Attachment> attachment_;
  std::unique_ptr<AttachmentPort> port_;
  std::unique_ptr<CmService> cm_;     // outlives the control socket
  std::unique_ptr<MadService> mads_;  // the same; null: RoCE has no subnet
  std::unique_ptr<Control> control_;
  std::unique_ptr<Host> host_;
  std::unique_ptr<Publisher> publisher_;
  SideBand side_band_;  // what ALO and Self-Tuned see of the routers
  std::unique_ptr<emu::ControlServer> ctl_;
  emu::PidFile pid_file_;
  emu::Log log_ = 0;

  std::vector<Received> received_;
  std::vector<Arrival> arrivals_;
  std::vector<emu::Injected> injected_;
  std::vector<emu::Answer> answers_;

  emu::Cycle now_ = 0;
  emu::Cycle told_ = 0;  // to programs, by the node page
  // Until then the host half has nothing to do by itself; 0: it is to be asked.
  emu::Cycle quiet_until_ = 0;
  std::uint64_t session_ = 0;
  std::uint64_t serviced_ns_ = 0;
  std::uint64_t published_ns_ = 0;
  std::uint64_t started_ns_ = 0;
  std::uint64_t active_ns_ = 0;  // there was work
  Naps naps_;
  emu::Patience patience_;
  bool looking_ = false;          // the last turn ended without rest
  std::uint64_t idle_ns_ = 0;     // host time of the last turn that had no work and expected none
  bool left_over_ = false;        // more came in than one turn takes
  bool was_up_ = false;           // attached at the last look
  bool dark_ = false;             // the fabric said that our link is down
  bool asleep_attached_ = false;  // we were when we fell asleep
  bool stop_asked_ = false;
};

}  // namespace hca
