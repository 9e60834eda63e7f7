// All streams of one process, both ways: finds the peers, opens and admits streams, posts ahead,
// takes what arrives, ends when all is delivered. One thread that wakes every few milliseconds.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "emu/base/result.h"
#include "emu/metrics/page.h"
#include "tools/replay/begin.h"
#include "tools/replay/clip_store.h"
#include "tools/replay/device.h"
#include "tools/replay/plan.h"
#include "tools/replay/rendezvous.h"
#include "tools/replay/sender.h"
#include "tools/replay/sink.h"
#include "tools/replay/turns.h"

namespace tools {

struct ReplayOptions {
  std::string node;                 // who we are in the plan
  std::string rendezvous;           // folder
  std::string device;               // "" = the first
  std::string metrics_run;          // run folder for the metrics page; "" = none
  std::vector<StreamPlan> streams;  // of the whole cluster
  bool sink = false;                // also take streams that the plan does not name
  double seconds = 20;              // emulated
  std::string begin;                // folder where it is said when streams begin (begin.h)
  std::uint32_t tick_ms = 10;       // between looks at the queues
  std::uint32_t wait_seconds = 60;  // host time, for peers to come
  std::uint32_t grace_ms = 2000;    // host time, for what a sender says that it has sent
  TextOptions text;                 // for clips that are text traces
  SendOptions send;
};

class Replayer {
 public:
  explicit Replayer(ReplayOptions options)
      : options_(std::move(options)),
        begin_(options_.begin, "replay-" + options_.node),
        turns_(options_.streams, options_.node) {}

  emu::Result<void> open();
  // Until every stream is over or `*stop` becomes non-zero: then what is posted is drained.
  emu::Result<void> run(const volatile int* stop);

  const std::deque<Sender>& senders() const { return senders_; }
  const std::deque<Sink>& sinks() const { return sinks_; }
  const ReplayOptions& options() const { return options_; }
  bool has_launch() const { return device_ && device_->has_launch(); }
  // Something went wrong that is not a matter of the fabric's policy: a dead peer, a broken queue
  // pair.
  bool all_well() const;
  bool bad_input() const { return bad_input_; }  // open() failed because of a clip or the plan

 private:
  struct SenderMetrics {
    emu::Gauge admitted, rejected_by;
    emu::Counter frames, bytes, refused;
  };
  struct SinkMetrics {
    emu::Counter frames, late, bytes, corrupt, lost, duplicated;
    emu::Gauge dmp, dmt, interval, deviation;
  };

  std::size_t streams_max() const;
  emu::Result<void> open_streams();
  void offer(std::size_t index);
  void on_line(Rendezvous::PeerIndex peer, const Words& words);
  void on_offer(Rendezvous::PeerIndex peer, const Words& words);
  void on_accept(const Words& words);
  void on_gone(Rendezvous::PeerIndex peer);
  void ask(Sender& sender);
  void ask_in_turn();
  void begin_streams();
  emu::Result<void> poll();
  emu::Result<void> tick();
  void post_all();
  void say_ends();
  void settle_sinks();
  bool over() const;
  std::chrono::nanoseconds nap() const;
  void give_up_waiting();
  void open_metrics();
  void publish();
  Sink* sink_of(const std::string& stream);
  Sender* sender_of(const std::string& stream);

  ReplayOptions options_;
  Begin begin_;
  Turns turns_;
  std::optional<Device> device_;
  std::optional<CompletionQueue> cq_;
  std::unique_ptr<ClipStore> clips_;
  std::optional<Rendezvous> rendezvous_;
  std::optional<emu::MetricsPage> page_;
  std::deque<Sender> senders_;
  std::deque<Sink> sinks_;
  std::vector<SenderMetrics> sender_metrics_;
  std::vector<SinkMetrics> sink_metrics_;
  std::vector<Rendezvous::PeerIndex> sender_peers_;
  std::vector<Rendezvous::PeerIndex> sink_peers_;
  std::vector<bool> end_said_;
  std::vector<WallTime> sinks_ending_;  // since when; none: not yet
  bool all_polled_ = true;              // the completion queue was empty after the last look
  WallTime started_{};
  bool waiting_over_ = false;
  bool bad_input_ = false;
};

// One line on the standard error: the time would differ from run to run, so there is none.
void say(const std::string& line);

}  // namespace tools
