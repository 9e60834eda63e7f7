// All generated traffic of one process: finds the other generators, starts the flows, counts what
// comes in, ends when every peer has said how much it sent. One thread, few wake-ups.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "emu/base/result.h"
#include "emu/metrics/page.h"
#include "tools/load/flow.h"
#include "tools/replay/begin.h"
#include "tools/replay/device.h"
#include "tools/replay/rendezvous.h"

namespace tools {

struct LoadOptions {
  std::string node;
  std::string rendezvous;
  std::string device;
  std::string metrics_run;        // "" = no page
  std::vector<std::string> to;    // destinations, drawn evenly; of some flow each
  std::vector<std::string> from;  // who will send to us; they are waited for
  bool sink = false;              // nobody in particular is expected, but somebody
  std::vector<FlowOptions> flows;
  double seconds = 20;  // emulated
  std::string begin;    // folder where it is said when to begin (tools/replay/begin.h)
  std::uint32_t tick_ms = 10;
  std::uint32_t wait_seconds = 60;
};

class Generator {
 public:
  explicit Generator(LoadOptions options)
      : options_(std::move(options)),
        begin_(options_.begin, "load-" + options_.node),
        nap_(options_.tick_ms * 1000) {}
  emu::Result<void> open();
  bool bad_usage() const { return bad_usage_; }  // open() failed because of what was asked for
  emu::Result<void> run(const volatile int* stop);

  const LoadOptions& options() const { return options_; }
  const std::deque<Flow>& flows() const { return flows_; }
  bool all_well() const { return well_; }

 private:
  struct FlowMetrics {
    emu::Counter sent, refused, received, bytes, lost, corrupt;
    emu::Histogram latency;
  };
  enum class PeerState : std::uint8_t { expected, asked, ended, gone };
  struct Peer {
    std::string node;
    Rendezvous::PeerIndex call = 0;  // our own conversation with it, if it is a destination
    bool destination = false;
    std::size_t questions = 0;  // to it, one for each flow that goes to it
    std::size_t answers = 0;
    bool out_over = false;            // nothing more goes to it: it has our last word, or is gone
    PeerState in = PeerState::ended;  // as a source
  };

  void ask(Peer& peer);
  void on_line(Rendezvous::PeerIndex index, const Words& words);
  void on_ask(Rendezvous::PeerIndex index, const Words& words);
  void on_address(const std::string& node, const Words& words);
  void on_gone(Rendezvous::PeerIndex index);
  emu::Result<void> tick();
  emu::Result<void> poll();
  void start_when_ready();
  void say_ends();
  void give_up_waiting();
  bool over() const;
  void open_metrics();
  void publish();
  Peer& peer_of(const std::string& node);
  Flow* flow_of(const std::string& kind);

  LoadOptions options_;
  Begin begin_;
  std::optional<Device> device_;
  std::optional<CompletionQueue> cq_;
  std::optional<Rendezvous> rendezvous_;
  std::optional<emu::MetricsPage> page_;
  std::vector<FlowMetrics> metrics_;
  std::deque<Flow> flows_;
  std::deque<Peer> peers_;
  WallTime opened_{};
  WallTime ended_{};  // when the last source said its last word
  bool ends_seen_ = false;
  bool started_ = false;
  bool ends_said_ = false;
  std::chrono::microseconds nap_;
  bool waiting_over_ = false;
  bool well_ = true;
  bool bad_usage_ = false;
};

std::string load_json(const Generator& generator);
std::string load_text(const Generator& generator);
void say_load(const std::string& line);

}  // namespace tools
