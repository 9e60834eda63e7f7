// One MPEG-2 stream over RC between two simulated nodes: admission, frames posted ahead with their
// launch times, deadlines and bytes checked where they arrive. The replayer's logic (tools/replay)
// over the rings instead of verbs.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "tests/sim/cluster.h"
#include "tests/sim/scenario.h"
#include "tools/replay/deadline.h"

namespace sim {

// What all programs of a node share: one client, its clips registered once.
struct NodeApp {
  NodeApp(Cluster& cluster, int node);
  Cluster& cluster;
  int node;
  App app;
  std::vector<hca::MrKeys> clip_keys;
};

class Stream {
 public:
  Stream(const Scenario& scenario, std::size_t index, NodeApp& from, NodeApp& to);

  void ask_admission();  // answer comes to admission()
  void admission(const hca::AdmissionOutcome& outcome) {
    outcome_ = outcome;
    answered_ = true;
  }
  bool answered() const { return answered_; }
  bool admitted() const { return answered_ && outcome_.verdict == hca::AdmissionVerdict::granted; }
  const hca::AdmissionOutcome& outcome() const { return outcome_; }
  std::uint32_t sender_qpn() const { return send_.number; }
  int from() const { return from_index_; }
  int to() const { return to_index_; }

  void start(emu::EmuNs start_ns, std::uint64_t frames);
  void tick();
  void stop() { running_ = false; }  // one of its programs is dead
  bool over() const { return !running_ || (sent_ == frames_ && received_ == frames_) || failed_; }
  bool failed() const { return failed_; }

  // Results.
  const tools::StreamPlan& plan() const { return plan_; }
  const tools::DeadlineMeter& deadlines() const { return deadlines_; }
  std::uint64_t sent() const { return sent_; }
  std::uint64_t received() const { return received_; }
  std::uint64_t credit_refusals() const { return credit_refusals_; }
  std::uint64_t bytes_corrupt() const { return bytes_corrupt_; }
  std::uint64_t lost() const { return sent_ - std::min(sent_, received_); }
  std::uint64_t duplicated() const { return deadlines_.repeated(); }

 private:
  static constexpr std::uint32_t kSlots = 16;  // frames under way
  static constexpr std::uint32_t kHeaderBytes = 64;

  emu::EmuNs frame_ns(std::uint64_t number) const;
  bool post_frame();
  void post_receive(std::uint32_t slot);
  void check_frame(const hca::Cqe& cqe);

  const tools::StreamPlan& plan_;
  const tools::Clip& clip_;
  tools::ClipRate rate_;
  std::size_t clip_index_;
  NodeApp& from_;
  NodeApp& to_;
  int from_index_;
  int to_index_;
  Completions send_cq_;
  Completions recv_cq_;
  Queue send_;
  Queue recv_;
  std::vector<std::uint8_t> headers_;
  hca::MrKeys header_keys_;
  std::vector<std::uint8_t> buffers_;
  hca::MrKeys buffer_keys_;
  std::uint32_t buffer_bytes_;
  tools::DeadlineMeter deadlines_;
  hca::AdmissionOutcome outcome_;
  bool answered_ = false;
  bool running_ = false;
  bool failed_ = false;
  emu::EmuNs start_ns_ = 0;
  std::uint64_t frames_ = 0;
  std::uint64_t sent_ = 0;
  std::uint64_t completed_ = 0;
  std::uint64_t received_ = 0;
  std::uint64_t credit_refusals_ = 0;
  std::uint64_t bytes_corrupt_ = 0;
};

}  // namespace sim
