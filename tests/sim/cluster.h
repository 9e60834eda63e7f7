// A whole cluster in one thread: the fabric's engine with its books and power meter, a Host per
// node, packets between them by reference. Emulated time moves a quantum at a time; the same
// configuration, programs and seed give the same run, bit by bit. Called by flitnet-sim and the
// cluster tests.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "emu/base/prng.h"
#include "emu/base/result.h"
#include "emu/config/config.h"
#include "emu/metrics/histogram.h"
#include "fabric/admit/admission.h"
#include "fabric/daemon/arbitration.h"
#include "fabric/daemon/power.h"
#include "fabric/router/network.h"
#include "hca/host/host.h"
#include "tests/sim/app.h"

namespace sim {

struct ClusterOptions {
  emu::Config config;
  std::uint64_t seed = 1;
  double drop = 0;  // fault injection: of delivered packets, lost between fabric and HCA
  emu::Cycle quantum = 128;
};

struct ClassMeter {
  std::uint64_t packets = 0;
  emu::PlainHistogram latency_ns;  // head injected -> tail arrived
};

// What a Host tells its node; programs register for the CQ events they need.
struct NodeEvents : hca::HostEvents {
  std::function<void(std::uint32_t qpn, const hca::AdmissionOutcome&)> on_admission;
  std::vector<std::pair<hca::AsyncEvent, std::uint32_t>> asyncs;
  void completion(hca::ClientId, std::uint32_t) override {}
  void wake_cq(hca::ClientId, std::uint32_t) override {}
  void async(hca::ClientId, hca::AsyncEvent event, std::uint32_t number) override {
    asyncs.emplace_back(event, number);
  }
  void admission(hca::ClientId, std::uint32_t qpn, const hca::AdmissionOutcome& outcome) override {
    if (on_admission) on_admission(qpn, outcome);
  }
};

class Cluster : private fabric::ControlHook {
 public:
  static emu::Result<std::unique_ptr<Cluster>> make(const ClusterOptions& options);
  ~Cluster() override;

  int nodes() const { return static_cast<int>(hosts_.size()); }
  hca::Host& host(int node) { return *hosts_[static_cast<std::size_t>(node)]; }
  NodeEvents& events(int node) { return *events_[static_cast<std::size_t>(node)]; }
  LocalMemory& memory() { return memory_; }
  const emu::Config& config() const { return options_.config; }
  emu::Cycle now() const { return network_->now(); }
  emu::EmuNs now_ns() const { return time_.ns(network_->now()); }
  const fabric::Network& network() const { return *network_; }
  const fabric::Admission& admission() const { return *admission_; }
  const emu::PowerMeter& power() const { return power_->meter(); }
  const std::array<ClassMeter, emu::kClassCount>& classes() const { return classes_; }
  std::uint64_t dropped() const { return dropped_; }
  // Latencies and power count from here.
  void start_measuring();

  // From now on the host runs this node's HCA only every so many cycles, and always takes it away
  // just after it has read the clock: what it hands on comes so much later than it believes.
  void stall(int node, emu::Cycle cycles);
  // Whether the HCA of a node acts in this turn, and at what cycle it believes to be.
  bool acts(int node) const;
  emu::Cycle believes(int node) const;

  // Hosts act, the fabric runs one quantum, events are handed out. Programs act between turns.
  void turn();

 private:
  struct NodePort;
  struct Control {
    fabric::ProbeState state;
    std::uint32_t slot;
  };

  explicit Cluster(const ClusterOptions& options);
  emu::Result<void> build();
  bool at_route(const fabric::ControlHead& head) override;
  void send(emu::NodeId source, const emu::TxDesc& desc);
  void give_back(std::uint32_t handle);
  void hand_out();
  void deliver(const hca::DeliveredEvent& event);

  ClusterOptions options_;
  emu::CycleTime time_;
  emu::Prng prng_;
  LocalMemory memory_;
  std::unique_ptr<fabric::Admission> admission_;
  std::unique_ptr<fabric::Network> network_;
  std::unique_ptr<fabric::Arbitration> arbitration_;
  std::unique_ptr<fabric::PowerWindows> power_;
  std::vector<std::unique_ptr<NodePort>> ports_;
  std::vector<std::unique_ptr<NodeEvents>> events_;
  std::vector<std::unique_ptr<hca::Host>> hosts_;
  std::array<emu::Vtick, emu::kVlCount> vticks_{};
  std::array<ClassMeter, emu::kClassCount> classes_;
  std::vector<std::vector<hca::Arrival>> arrivals_;  // that its HCA has not seen, per node
  std::vector<std::vector<emu::Injected>> injected_;
  std::vector<std::vector<std::uint32_t>> unread_;  // packets of arrivals_ that it has not seen
  struct Stall {
    emu::Cycle cycles = 0;
    emu::Cycle since = 0;
  };
  std::vector<Stall> stalls_;  // by node
  std::uint64_t dropped_ = 0;
};

}  // namespace sim
