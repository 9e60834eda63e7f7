// A scenario on a cluster from admission to the last frame, and what came of it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "emu/base/result.h"
#include "tests/sim/cluster.h"
#include "tests/sim/datagrams.h"
#include "tests/sim/scenario.h"
#include "tests/sim/stream.h"

namespace sim {

class Run {
 public:
  // Builds everything and connects it; nothing has been asked for yet.
  static emu::Result<std::unique_ptr<Run>> make(const ClusterOptions& options, Scenario scenario);
  ~Run();

  void admit();  // every stream asks, one at a time per node
  void start();  // traffic begins shortly
  void play();   // until all of it has been sent and has arrived, or is overdue
  bool over() const;
  emu::EmuNs left_ns() const;  // of the time in which traffic is sent
  void turn();                 // one quantum with all programs
  void run_ns(emu::EmuNs ns);
  // The host gives the sending streams of a node no time before `until_ns`: what they would have
  // posted comes late, and all at once.
  void starve(int node, emu::EmuNs until_ns) {
    starved_until_ns_[static_cast<std::size_t>(node)] = until_ns;
  }
  // Ends the programs of a node as SIGKILL would.
  void kill_apps(int node);

  Cluster& cluster() { return *cluster_; }
  const Scenario& scenario() const { return scenario_; }
  std::vector<std::unique_ptr<Stream>>& streams() { return streams_; }
  std::uint64_t lost() const;
  std::uint64_t duplicated() const;
  // The JSON that `flitnet demo --json` documents. The same run gives the same bytes.
  std::string json() const;

 private:
  Run(Scenario scenario) : scenario_(std::move(scenario)) {}
  emu::Result<void> build(const ClusterOptions& options);
  bool starved(std::size_t node) const { return cluster_->now_ns() < starved_until_ns_[node]; }

  Scenario scenario_;
  std::unique_ptr<Cluster> cluster_;
  std::vector<std::unique_ptr<Stream>> streams_;
  std::vector<std::unique_ptr<Datagrams>> best_effort_;
  std::vector<std::unique_ptr<Datagrams>> control_;
  std::vector<std::unique_ptr<NodeApp>> apps_;  // end before the bytes of their programs
  std::vector<emu::EmuNs> starved_until_ns_;    // by node
  emu::EmuNs end_ns_ = 0;
};

}  // namespace sim
