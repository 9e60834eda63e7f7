// The streams of a FlitRun before its HCAs: admitted before traffic begins, and asked for again
// when links fail.
#include <algorithm>
#include <limits>

#include "emu/energy/meter.h"
#include "tools/sim/flit_run.h"

namespace tools {

// Connections are set up before traffic begins; those that were dropped stay away.
void FlitRun::open_circuits() {
  const WorkloadSpec& spec = point_.workload;
  double wanted_bps = std::numeric_limits<double>::infinity();
  if (spec.circuit_attempts > 0) {
    wanted_bps =
        spec.load * spec.real_time_share * setting_.nodes * setting_.flits_per_cycle_mbps * 1e6;
    // The rates that streams ask for have headers.
    if (!spec.load_counts_headers) {
      wanted_bps *= static_cast<double>(spec.message_flits) /
                    static_cast<double>(spec.message_flits - spec.header_flits);
    }
  }
  circuits_->open(*network_, workload_.demands, wanted_bps);
  for (std::uint32_t i = 0; i < workload_.streams; ++i) {
    if (circuits_->of_stream()[i] == 0) workload_.sources[workload_.source_of_stream[i]] = nullptr;
  }
  std::erase(workload_.sources, nullptr);
  begin_workload();
}

// Streams ask one after another, before traffic begins; those that are refused stay away.
void FlitRun::admit() {
  bookings_->attach(*network_, workload_.demands);
  if (point_.cluster.controls.admission) {
    if (failures_ != nullptr) {
      stream_of_source_.assign(workload_.sources.size(), kNoStream);
      held_.resize(workload_.streams);
    }
    for (std::uint32_t i = 0; i < workload_.streams; ++i) {
      const bool granted = bookings_->ask(*network_, i);
      if (failures_ != nullptr) {
        stream_of_source_[workload_.source_of_stream[i]] = i;  // it may ask again
      } else if (!granted) {
        workload_.sources[workload_.source_of_stream[i]] = nullptr;
      }
    }
    std::erase(workload_.sources, nullptr);
  }
  begin_workload();
}

// With one of the engine's power windows.
void FlitRun::begin_workload() {
  const auto window = emu::kPowerWindowCycles;
  network_->run_until((network_->now() + window - 1) / window * window);
  network_->clear_events();
  base_ = network_->now();
  begin_windows();
}

// Links go or come back: what leaves from now on takes other ways, whose length is their energy,
// and streams whose ways changed ask for them.
void FlitRun::change_links() {
  failures_->apply(*network_);
  for (HcaGate& gate : gates_) gate.links_changed(*network_);
  if (bookings_ != nullptr) bookings_->links_changed(*network_);
}

// What a stream created from created_[first] on waits for the answer to its asking; of one that was
// refused nothing is sent.
void FlitRun::hold_back(std::size_t source, std::size_t first) {
  const std::uint32_t stream = stream_of_source_[source];
  if (stream == kNoStream) return;
  const Bookings::Standing standing = bookings_->standing(stream);
  if (standing == Bookings::Standing::granted) return;
  const auto begin = created_.begin() + static_cast<std::ptrdiff_t>(first);
  if (standing == Bookings::Standing::asking) {
    held_[stream].insert(held_[stream].end(), begin, created_.end());
  } else {
    std::for_each(begin, created_.end(), [this](const FlitMessage& m) { give_up(m); });
  }
  created_.erase(begin, created_.end());
}

void FlitRun::give_up(const FlitMessage& message) {
  ++given_up_;
  measure_->given_up(message);
}

void FlitRun::let_go() {
  for (std::uint32_t stream = 0; stream < held_.size(); ++stream) {
    std::vector<FlitMessage>& held = held_[stream];
    if (held.empty() || bookings_->standing(stream) == Bookings::Standing::asking) continue;
    if (bookings_->standing(stream) == Bookings::Standing::granted) {
      for (FlitMessage& message : held) offer(message);
    } else {
      std::ranges::for_each(held, [this](const FlitMessage& m) { give_up(m); });
    }
    held.clear();
  }
}

}  // namespace tools
