// What a run measures, batch by batch: sums, so that whoever reads them may leave out the warm-up
// and join batches and runs. In: deliveries and completed frames with their cycles. Out: JSON.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "emu/base/json_line.h"
#include "emu/base/units.h"
#include "emu/metrics/histogram.h"
#include "tools/replay/deadline.h"
#include "tools/sim/workload.h"

namespace tools {

// Sums over the messages of one class that were delivered in a batch. Latencies in cycles.
struct ClassBatch {
  double messages = 0;
  double flits = 0;
  double network_cycles = 0;  // head injected -> tail ejected
  double queue_cycles = 0;    // accepted by the HCA -> head injected
  double host_cycles = 0;     // created -> accepted by the HCA, tail ejected -> taken by the host
  double offered_flits = 0;   // created in the batch
};

struct Batch {
  std::array<ClassBatch, emu::kClassCount> classes{};
  // Of frames completed in the batch. Intervals as deviations from the frame time, so that their
  // squares keep their digits.
  double frames = 0;
  double missed = 0;
  double late_ms = 0;
  double intervals = 0;
  double deviation_ms = 0;
  double deviation_sq = 0;
  double energy_pj = 0;
  // The largest energy of a power window (500 cycles) of which a part lay in it.
  double window_pj = 0;
  double router_window_pj = 0;  // the largest of one router with its links
  double hca_pj = 0;            // of the HCAs, by their model: beside energy_pj
  double hca_window_pj = 0;     // the largest of one HCA in a power window
};

class Measure : public FrameBook {
 public:
  Measure(emu::CycleTime time, emu::Cycle batch_cycles, std::size_t batches, std::size_t streams,
          double frame_ms);

  // A host takes so long for each message that has arrived.
  void host_takes(emu::Cycle cycles) { take_cycles_ = cycles; }
  // Tails and shares of nodes are those of the whole run, as where a change is measured; else of
  // its second half, which is past any warm-up.
  void tails_of_all() { tails_from_ = 0; }
  void offered(const FlitMessage& message);
  void delivered(const FlitMessage& message, emu::Cycle head, emu::Cycle tail);
  void frame_begins(std::uint32_t stream, std::uint32_t frame, std::uint32_t messages) override;
  // A message that was created and is never sent: its frame will not be complete.
  void given_up(const FlitMessage& message);
  // A power window that ended: each batch has as much of its energy as of its cycles, and is asked
  // for its largest window.
  void window(emu::Cycle end, double picojoules, double largest_router_pj);
  void hca_window(emu::Cycle end, double picojoules, double largest_hca_pj);

  const std::vector<Batch>& batches() const { return batches_; }
  // Frames begun and neither complete at the end nor given up.
  std::uint64_t frames_under_way() const;
  void write(emu::JsonWriter& json) const;

 private:
  struct FrameUnderWay {
    std::uint32_t missing = 0;  // messages
    bool whole = true;          // none was given up
  };
  struct Stream {
    std::deque<FrameUnderWay> frames;  // oldest first
    std::uint32_t oldest = 0;          // its number
    // Of the frames that were complete, the last.
    std::uint32_t last_frame = 0;
    emu::Cycle last_tail = 0;
    bool any = false;
    DeadlineMeter deadlines{};
  };
  Batch* batch_at(emu::Cycle cycle);
  template <class Visit>
  void batches_of_window(emu::Cycle end, Visit&& visit);
  void write_tails(emu::JsonWriter& json) const;
  // One of its messages has come, or never will; true: its frame is complete with that.
  static bool end_message(Stream& stream, const FlitMessage& message, bool came);
  void frame_message(const FlitMessage& message, emu::Cycle tail);
  void frame_complete(Stream& stream, std::uint32_t frame, emu::Cycle tail);

  emu::CycleTime time_;
  emu::Cycle batch_cycles_;
  emu::Cycle take_cycles_ = 0;
  double frame_ms_;
  FrameRate frame_rate_;
  std::vector<Batch> batches_;
  emu::Cycle tails_from_;
  std::vector<Stream> streams_;
  // From tails_from_ on: latency with queueing by class, and what each node got through of best
  // effort.
  std::array<emu::PlainHistogram, emu::kClassCount> latencies_{};
  std::vector<double> node_flits_;
  std::vector<double> node_offered_flits_;  // of best effort, of the whole run: 0 of who is silent
};

}  // namespace tools
