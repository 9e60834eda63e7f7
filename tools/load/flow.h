// One kind of generated traffic of a node, both ways: a UD queue pair, an arrival process towards
// random destinations, a count of what comes in. Driven by Generator.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "emu/metrics/histogram.h"
#include "tools/load/arrivals.h"
#include "tools/load/sequence.h"
#include "tools/replay/device.h"

namespace tools {

struct FlowOptions {
  std::string kind;           // "best-effort", "control", "on-off"
  std::string traffic_class;  // as metrics call it
  std::uint16_t number = 0;   // of the kind, in stamps
  std::uint8_t sl = 0;
  std::uint32_t payload_bytes = 604;
  ArrivalOptions arrivals;
  // Where it goes; none: where the generator does. Of on-off each is a connection with times of its
  // own and the rate of `arrivals`, and a node may be there several times. Of those, the first ones
  // go in a step whose factor (ArrivalOptions) is a part of one.
  std::optional<std::vector<std::string>> to;
  std::string hot_node;  // of the messages this part goes to it, the others to all alike
  double hot_share = 0;
  std::uint32_t ahead_ms = 40;  // how far messages are posted before their launch
  std::uint64_t seed = 1;
};

struct FlowCounts {
  std::uint64_t sent = 0;
  std::uint64_t refused = 0;  // posts refused because the send queue was full
  std::uint64_t late = 0;     // messages whose time was moved because the host was late
  // Messages that were posted after their time because the send queue had been full, and how long
  // after: it is queueing and part of their latency.
  std::uint64_t behind = 0;
  emu::EmuNs behind_ns = 0;  // of all of them
  emu::EmuNs behind_ns_max = 0;
  std::uint64_t errors = 0;  // completions with an error
  std::uint64_t received = 0;
  std::uint64_t received_bytes = 0;
  std::uint64_t lost = 0;
  std::uint64_t duplicated = 0;
  std::uint64_t corrupt_bytes = 0;
  std::uint64_t foreign = 0;  // messages of another run or of nobody
};

class Flow {
 public:
  // `to`: destinations of the generator, for a flow without its own.
  Flow(FlowOptions options, const std::vector<std::string>& to, std::uint64_t token);
  // Whether the port takes packets of this size; an error is the user's.
  emu::Result<void> check(const Device& device) const;
  emu::Result<void> open(const Device& device, const CompletionQueue& cq, std::uint64_t wr_base);
  Endpoint endpoint() const { return endpoint_; }
  std::uint64_t token() const { return token_; }
  bool goes_to(const std::string& node) const { return std::ranges::count(to_, node) > 0; }

  // A destination that has said where it is and how it wants to be addressed.
  emu::Result<void> add_destination(const Device& device, const std::string& node,
                                    const Endpoint& remote, std::uint16_t source,
                                    std::uint64_t token);
  void drop_destination(const std::string& node);
  std::uint64_t sent_to(const std::string& node) const;

  // A node that asked where we are; returns its place in our list.
  std::uint16_t add_source(const std::string& node);
  void end_source(const std::string& node, std::uint64_t sent);  // it has sent so many
  bool sources_whole() const;  // all that ended have arrived completely
  void settle();               // what is missing of the ended is lost

  void start(emu::EmuNs now_ns, emu::EmuNs until_ns);
  emu::Result<void> tick(const Device& device, emu::EmuNs now_ns);
  void complete(const Completion& done, bool receive);
  void stop() { until_ns_ = 0; }
  // All that was posted has left. Unless the end came as a surprise (stop, all destinations gone)
  // the last message is signalled; then fewer than kSignalEvery may still be on their way.
  bool sending_over() const {
    return started_ && finished_ && posted_ - completed_ < (last_signalled_ ? 1 : kSignalEvery);
  }
  bool started() const { return started_; }
  // The part of its queues that was used between the last two turns, for `next_nap`. Of receives
  // the whole is half of the buffers: senders do not wait for them.
  double used() const { return used_; }

  const FlowOptions& options() const { return options_; }
  const FlowCounts& counts() const { return counts_; }
  const emu::PlainHistogram& latency() const { return latency_; }

  // Of the send queue: what is due in 13 ms, that is 1024 full packets of a link of 400 Mb/s. The
  // HCA and the generator nap, so a few ms pass until a message that has left makes room.
  std::uint32_t sends() const { return send_slots_; }
  static constexpr std::uint32_t kSendsMost = 4096;
  static constexpr std::uint32_t kReceives = 4096;  // 400 ms of best effort at 48 Mb/s

 private:
  static constexpr std::uint32_t kSendsLeast = 1024;  // 100 ms of best effort at 48 Mb/s
  static constexpr double kSendsNs = 13e6;
  static constexpr std::uint32_t kSignalEvery = 16;
  static constexpr std::size_t kGrhBytes = 40;  // IBA: in front of every UD receive

  struct DestroyAh {
    void operator()(ibv_ah* ah) const { ibv_destroy_ah(ah); }
  };
  struct Destination {
    std::string node;
    std::unique_ptr<ibv_ah, DestroyAh> ah;
    Endpoint remote;
    std::uint16_t source = 0;
    std::uint64_t token = 0;
    std::uint64_t sent = 0;
    bool alive = true;
  };
  // What draws when the next message is due; and to whom, if it is always the same.
  struct Clock {
    Arrivals arrivals;
    std::string to;  // "": drawn for each message
  };
  struct Source {
    std::string node;
    SequenceTracker seen;
    std::optional<std::uint64_t> sent;
  };

  void make_clocks();
  std::uint32_t sends_for_rate() const;
  Clock* next_clock();
  int post(const Device& device, Destination& to, emu::EmuNs launch_ns, bool last);
  void count_behind(emu::EmuNs by_ns);
  bool is_last(const Clock& clock) const;
  emu::Result<void> post_receive(std::uint32_t buffer);
  void receive(const Completion& done);
  std::optional<std::size_t> pick(const Clock& clock);

  FlowOptions options_;
  std::vector<std::string> to_;
  std::uint64_t token_;
  emu::Prng prng_;
  std::vector<Clock> clocks_;
  std::uint32_t send_slots_ = kSendsLeast;
  Region sends_;
  Region receives_;
  Qp qp_;
  Endpoint endpoint_;
  std::uint64_t wr_base_ = 0;
  std::size_t receive_stride_ = 0;
  std::vector<Destination> destinations_;
  std::deque<Source> sources_;
  // Of the next message, drawn once: how often it is looked at must not change what a seed draws.
  Clock* next_ = nullptr;
  std::optional<std::size_t> next_to_;
  std::uint64_t posted_ = 0;
  std::uint64_t completed_ = 0;
  std::uint64_t completed_before_ = 0;  // at the last turn
  std::uint32_t taken_ = 0;             // receives since then
  double used_ = 0;
  emu::EmuNs until_ns_ = 0;
  bool started_ = false;
  bool finished_ = false;
  bool last_signalled_ = false;
  bool queue_was_full_ = false;  // then a message in the past is queueing, not a late host
  FlowCounts counts_;
  emu::PlainHistogram latency_;
};

}  // namespace tools
