#include "tools/sim/workload.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>

#include "tools/load/gaps.h"
#include "tools/sim/draw.h"
#include "tools/sim/flows.h"
#include "tools/sim/frames.h"
#include "tools/sim/on_off.h"

namespace tools {

namespace {

constexpr std::array<Mpeg2Sequence, 7> kSequences = {{{430.2, 295.6, 194.2},
                                                      {839.4, 680.6, 401.0},
                                                      {534.7, 569.4, 387.8},
                                                      {393.3, 340.3, 241.4},
                                                      {350.6, 242.9, 172.9},
                                                      {974.7, 721.9, 529.6},
                                                      {637.6, 536.0, 394.3}}};
constexpr double kFramesPerSecond = 30;

emu::Vl draw_lane(emu::LaneMask lanes, emu::Prng& prng) {
  auto nth = prng.below(static_cast<std::uint32_t>(std::popcount(lanes)));
  emu::LaneMask left = lanes;
  while (nth-- > 0) left = static_cast<emu::LaneMask>(left & (left - 1));
  return static_cast<emu::Vl>(std::countr_zero(left));
}

double mean_kbit(const Mpeg2Sequence& s) { return (s.i_kbit + 3 * s.p_kbit + 8 * s.b_kbit) / 12; }

// Messages of one node without frames: best effort or control.
class MessageSource : public Source {
 public:
  MessageSource(const Setting& setting, const Pattern& pattern, emu::TrafficClass traffic_class,
                emu::NodeId node, std::uint64_t seed)
      : setting_(setting),
        pattern_(pattern),
        class_(traffic_class),
        node_(node),
        prng_(seed),
        gaps_(class_ == emu::TrafficClass::control ? ArrivalLaw::poisson : setting.spec.arrivals,
              setting.spec.pareto_shape) {
    flits_ = class_ == emu::TrafficClass::control ? setting.spec.control_flits
                                                  : setting.spec.message_flits;
    forgets_ = class_ == emu::TrafficClass::control || setting.spec.arrivals == ArrivalLaw::poisson;
    least_mean_ = least_mean();
    next_ = next_after(0);
  }

  emu::Cycle feed(emu::Cycle horizon, std::vector<FlitMessage>& out) override {
    for (; next_ < static_cast<double>(horizon); next_ = next_after(next_)) {
      const emu::NodeId dest = pattern_.destination(node_, prng_);
      const emu::LaneMask lanes = setting_.lanes[static_cast<std::size_t>(class_)];
      const emu::Vl vl_in = draw_lane(lanes, prng_);
      const emu::Vl vl_out = draw_lane(lanes, prng_);
      if (dest == node_) continue;
      out.push_back(
          {.created = static_cast<emu::Cycle>(next_),
           .stream = kNoStream,
           .flits = static_cast<std::uint16_t>(flits_),
           .source = node_,
           .dest = dest,
           .vl_in = vl_in,
           .vl_out = vl_out,
           .traffic_class = class_,
           .vtick = class_ == emu::TrafficClass::control ? emu::Vtick{1} : emu::kVtickMax});
    }
    return static_cast<emu::Cycle>(next_);
  }

 private:
  // Mean cycles between messages at the load in force; 0: silence.
  double mean_gap(double at) const {
    const WorkloadSpec& spec = setting_.spec;
    if (class_ == emu::TrafficClass::control) {
      return spec.frame_ms * 1e9 / static_cast<double>(setting_.time.cycle_ps) /
             spec.control_per_frame;
    }
    const auto cycle = static_cast<emu::Cycle>(at);
    double load = spec.load;
    if (spec.pulse_cycles > 0 && cycle / spec.pulse_cycles % 2 == 1) load = spec.pulse_load;
    load *= 1 - setting_.share_at(cycle);
    return load > 0 ? flits_ / load : 0;
  }
  // The mean gap at the highest load of the run.
  double least_mean() const {
    const WorkloadSpec& spec = setting_.spec;
    double load = spec.load;
    if (spec.pulse_cycles > 0) load = std::max(load, spec.pulse_load);
    double share = setting_.share_at(0);
    if (share > 0 && !spec.phases.empty()) share = std::ranges::min(spec.phases);
    load *= 1 - share;
    return load > 0 ? flits_ / load : 0;
  }
  // A load that changes at a known cycle is met exactly: exponential gaps, which forget, are drawn
  // anew from there; of others one is drawn, at the highest load, and passes by the load in force.
  double next_after(double at) {
    double gap = forgets_ ? 0 : gaps_.next(least_mean_, flits_, prng_);
    for (;;) {
      const double change = change_after(at);
      const double mean = mean_gap(at);
      if (mean > 0) {
        const double stretch = forgets_ ? 1 : mean / least_mean_;
        if (forgets_) gap = gaps_.next(mean, flits_, prng_);
        const double next = at + gap * stretch;
        if (next < change) return next;
        gap -= (change - at) / stretch;
      }
      if (change > static_cast<double>(setting_.end)) return 1e18;
      at = change;
    }
  }
  double change_after(double at) const {
    const WorkloadSpec& spec = setting_.spec;
    double next = 1e18;
    if (class_ == emu::TrafficClass::control) return next;
    if (spec.pulse_cycles > 0) {
      const auto pulse = static_cast<double>(spec.pulse_cycles);
      next = std::min(next, (std::floor(at / pulse) + 1) * pulse);
    }
    if (spec.phases.size() > 1) {
      const emu::Cycle phase = setting_.next_phase(static_cast<emu::Cycle>(at));
      next = std::min(next, static_cast<double>(phase));
    }
    return next;
  }
  const Setting& setting_;
  const Pattern& pattern_;
  emu::TrafficClass class_;
  emu::NodeId node_;
  emu::Prng prng_;
  Gaps gaps_;
  std::uint32_t flits_ = 0;
  bool forgets_ = true;
  double least_mean_ = 0;
  double next_ = 0;
};

// Owns what the sources of messages refer to.
class MessageSources : public Source {
 public:
  MessageSources(const Setting& setting, emu::TrafficClass traffic_class, PatternKind kind,
                 std::uint64_t seed)
      : pattern_(kind, setting.nodes, setting.spec.hot_share, seed) {
    for (int n = 0; n < setting.nodes; ++n) {
      nodes_.push_back(std::make_unique<MessageSource>(setting, pattern_, traffic_class,
                                                       static_cast<emu::NodeId>(n),
                                                       seed * 7919 + static_cast<unsigned>(n)));
    }
    due_.resize(nodes_.size());
  }
  emu::Cycle feed(emu::Cycle horizon, std::vector<FlitMessage>& out) override {
    emu::Cycle next = emu::kNever;
    for (std::size_t n = 0; n < nodes_.size(); ++n) {
      if (due_[n] < horizon) due_[n] = nodes_[n]->feed(horizon, out);
      next = std::min(next, due_[n]);
    }
    return next;
  }

 private:
  Pattern pattern_;
  std::vector<std::unique_ptr<MessageSource>> nodes_;
  std::vector<emu::Cycle> due_;  // by node: nothing comes before
};

// Chooses streams that make the load of every link, and where they go.
class Streams {
 public:
  Streams(const Setting& setting, FrameBook& book, std::uint64_t seed)
      : setting_(setting), book_(book), prng_(seed), seed_(seed) {}

  // Streams of the whole run; returns what they offer of a link, as a mean over it. Sources add
  // them in rounds, as many and the same sequences at each node. `loads` is by phase: where it
  // grows sources add streams to those that they have, which go on as films do, where it falls the
  // newest end.
  double add(Workload& workload, std::span<const double> loads) {
    if (setting_.spec.circuit_attempts > 0) {  // who of them gets a circuit is seen later
      while (workload.streams < setting_.spec.circuit_attempts) {
        add_round(workload, next_sequence(), 0, setting_.end);
      }
      return loads.front();
    }
    double offered = 0;
    for (const Round& round : rounds_of(loads)) {
      add_round(workload, round.sequence, start_of(round.begin, loads), start_of(round.end, loads));
      offered += load_of(round.sequence) * static_cast<double>(round.end - round.begin);
    }
    return offered / static_cast<double>(loads.size());
  }

 private:
  // One stream of every node, from phase to phase.
  struct Round {
    int sequence = 0;
    std::size_t begin = 0;
    std::size_t end = 0;
  };

  emu::Cycle start_of(std::size_t phase, std::span<const double> loads) const {
    return setting_.end * phase / loads.size();
  }
  std::vector<Round> rounds_of(std::span<const double> loads) {
    std::vector<Round> rounds;
    std::vector<std::size_t> going;  // into rounds, the newest last
    double offered = 0;
    for (std::size_t phase = 0; phase < loads.size(); ++phase) {
      // One goes, or comes, only if that brings the load nearer.
      while (!going.empty() &&
             offered - load_of(rounds[going.back()].sequence) / 2 > loads[phase]) {
        offered -= load_of(rounds[going.back()].sequence);
        rounds[going.back()].end = phase;
        going.pop_back();
      }
      for (;;) {
        // So many are refused: no more of them are made.
        if (rounds.size() * static_cast<std::size_t>(setting_.nodes) >= kNoStream) return rounds;
        const int sequence = next_sequence();
        if (offered + load_of(sequence) / 2 > loads[phase]) break;
        offered += load_of(sequence);
        going.push_back(rounds.size());
        rounds.push_back({.sequence = sequence, .begin = phase, .end = loads.size()});
      }
    }
    return rounds;
  }
  int next_sequence() {
    if (setting_.spec.streams != StreamKind::mpeg2) return -1;
    if (bag_.empty()) {
      for (int s = 0; s < static_cast<int>(kSequences.size()); ++s) bag_.push_back(s);
      tools::shuffle(prng_, bag_);
    }
    const int sequence = bag_.back();
    bag_.pop_back();
    return sequence;
  }
  double frame_bits(int sequence) const {
    if (sequence < 0) return setting_.spec.stream_kbps * setting_.spec.frame_ms;
    return 1000 * mean_kbit(kSequences[static_cast<std::size_t>(sequence)]);
  }
  double load_of(int sequence) const {
    const WorkloadSpec& spec = setting_.spec;
    const double bps = frame_bits(sequence) / spec.frame_ms * 1000;
    const double payload_load = bps / (setting_.flits_per_cycle_mbps * 1e6);
    if (!spec.load_counts_headers) return payload_load;
    return payload_load * spec.message_flits / (spec.message_flits - spec.header_flits);
  }
  // Rates are those on the link; the peak is that of the largest frame, or of the ON time.
  StreamDemand demand_of(const StreamShape& shape) const {
    const WorkloadSpec& spec = setting_.spec;
    const double headers = static_cast<double>(spec.message_flits) /
                           static_cast<double>(spec.message_flits - spec.header_flits);
    const double rate = frame_bits(shape.sequence) / spec.frame_ms * 1000 * headers;
    const auto rate_bps = static_cast<std::uint64_t>(rate + 0.5);
    const auto link_bps = static_cast<std::uint64_t>(setting_.flits_per_cycle_mbps * 1e6 + 0.5);
    double peak = 1;
    if (spec.streams == StreamKind::on_off) peak = (spec.on_ms + spec.off_ms) / spec.on_ms;
    if (shape.sequence >= 0) {
      const Mpeg2Sequence& sequence = kSequences[static_cast<std::size_t>(shape.sequence)];
      peak = std::max(sequence.i_kbit, sequence.p_kbit) / mean_kbit(sequence);
    }
    return {.source = shape.source,
            .dest = shape.dest,
            .vl_in = shape.vl_in,
            .vl_out = shape.vl_out,
            .rate_bps = rate_bps,
            .peak_bps = static_cast<std::uint64_t>(rate * peak + 0.5),
            .vtick = emu::vtick_of(link_bps, rate_bps)};
  }
  // One stream from every node.
  void add_round(Workload& workload, int sequence, emu::Cycle begin, emu::Cycle end) {
    const std::vector<emu::NodeId> dests = destinations();
    const emu::LaneMask lanes =
        setting_.lanes[static_cast<std::size_t>(emu::TrafficClass::real_time)];
    const double frame_cycles =
        setting_.spec.frame_ms * 1e9 / static_cast<double>(setting_.time.cycle_ps);
    for (int n = 0; n < setting_.nodes; ++n) {
      StreamShape shape;
      shape.number = workload.streams++;
      shape.source = static_cast<emu::NodeId>(n);
      shape.dest = dests[static_cast<std::size_t>(n)];
      shape.vl_in = nth(lanes, rounds_);
      shape.vl_out = draw_lane(lanes, prng_);
      shape.sequence = sequence;
      shape.frame_bits = frame_bits(sequence);
      shape.begin = begin + static_cast<emu::Cycle>(prng_.uniform() * frame_cycles);
      shape.end = end;
      shape.picture = prng_.below(12);
      const std::uint64_t seed = seed_ * 104729 + shape.number;
      const StreamDemand demand = demand_of(shape);
      workload.demands.push_back(demand);
      workload.source_of_stream.push_back(workload.sources.size());
      if (setting_.spec.streams == StreamKind::on_off) {
        workload.sources.push_back(
            std::make_unique<OnOffSource>(setting_, demand, begin, end, seed));
      } else {
        workload.sources.push_back(std::make_unique<FrameSource>(setting_, shape, book_, seed));
      }
    }
    ++rounds_;
  }
  static emu::Vl nth(emu::LaneMask lanes, std::uint32_t n) {
    n %= static_cast<std::uint32_t>(std::popcount(lanes));
    emu::LaneMask left = lanes;
    while (n-- > 0) left = static_cast<emu::LaneMask>(left & (left - 1));
    return static_cast<emu::Vl>(std::countr_zero(left));
  }
  std::vector<emu::NodeId> destinations() {
    const auto nodes = static_cast<std::uint32_t>(setting_.nodes);
    std::vector<emu::NodeId> dests(nodes);
    if (setting_.spec.placement == Placement::balanced) {
      // A random permutation without fixed points, drawn until it has none.
      for (bool fixed = true; fixed;) {
        for (std::uint32_t n = 0; n < nodes; ++n) dests[n] = static_cast<emu::NodeId>(n);
        tools::shuffle(prng_, dests);
        fixed = false;
        for (std::uint32_t n = 0; n < nodes; ++n) fixed |= dests[n] == n;
      }
      return dests;
    }
    for (std::uint32_t n = 0; n < nodes; ++n) {
      const auto other = prng_.below(nodes - 1);
      dests[n] = static_cast<emu::NodeId>(other >= n ? other + 1 : other);
    }
    return dests;
  }

  const Setting& setting_;
  FrameBook& book_;
  emu::Prng prng_;
  std::uint64_t seed_;
  std::uint32_t rounds_ = 0;
  std::vector<int> bag_;
};

}  // namespace

std::span<const Mpeg2Sequence> mpeg2_sequences() { return kSequences; }

bool has_streams(const WorkloadSpec& spec) {
  return spec.flows.empty() && spec.streams != StreamKind::none && spec.load > 0 &&
         (spec.phases.empty() ? spec.real_time_share > 0
                              : std::ranges::any_of(spec.phases, [](double s) { return s > 0; }));
}
bool has_best_effort(const WorkloadSpec& spec) {
  if (!spec.flows.empty()) return true;
  if (spec.load <= 0 && !(spec.pulse_cycles > 0 && spec.pulse_load > 0)) return false;
  if (spec.streams == StreamKind::none) return true;
  return spec.phases.empty() ? spec.real_time_share < 1
                             : std::ranges::any_of(spec.phases, [](double s) { return s < 1; });
}

double Setting::share_at(emu::Cycle cycle) const {
  if (spec.streams == StreamKind::none) return 0;
  if (spec.phases.empty()) return spec.real_time_share;
  const auto count = spec.phases.size();
  return spec
      .phases[std::min<std::size_t>(count - 1, cycle * count / std::max<emu::Cycle>(end, 1))];
}

emu::Cycle Setting::next_phase(emu::Cycle cycle) const {
  const auto count = spec.phases.size();
  const emu::Cycle length = std::max<emu::Cycle>(end, 1);
  return ((cycle * count / length + 1) * length + count - 1) / count;
}

emu::Result<Workload> make_workload(const Setting& setting, FrameBook& book, std::uint64_t seed) {
  Workload workload;
  const WorkloadSpec& spec = setting.spec;
  if (spec.header_flits >= spec.message_flits) {
    return emu::fail("workload.header_flits: {} of a message of {} flits", spec.header_flits,
                     spec.message_flits);
  }
  const double frame_cycles = spec.frame_ms * 1e9 / static_cast<double>(setting.time.cycle_ps);
  if (spec.control_per_frame * spec.control_flits > 2 * frame_cycles) {
    return emu::fail("workload.control_per_frame: {:g} messages of {} flits are more than 2 links",
                     spec.control_per_frame, spec.control_flits);
  }
  if (has_streams(spec)) {
    Streams streams(setting, book, seed * 2 + 1);
    std::vector<double> loads{spec.load * spec.real_time_share};
    if (!spec.phases.empty()) loads.clear();
    for (const double share : spec.phases) loads.push_back(spec.load * share);
    workload.stream_load = streams.add(workload, loads);
  }
  if (workload.streams >= kNoStream) {
    return emu::fail("workload: {} streams, at most {}", workload.streams, kNoStream - 1);
  }
  std::map<emu::NodeId, std::uint32_t> of_node;
  for (const FlowSpec& flow : spec.flows) {
    const auto number = static_cast<std::uint16_t>(workload.sources.size() + 1);
    workload.sources.push_back(std::make_unique<FlowSource>(
        setting, flow, number, of_node[flow.source]++, seed * 7919 + number));
  }
  if (has_best_effort(spec) && spec.flows.empty()) {
    workload.sources.push_back(std::make_unique<MessageSources>(
        setting, emu::TrafficClass::best_effort, spec.pattern, seed * 2 + 2));
  }
  if (spec.control_per_frame > 0) {
    workload.sources.push_back(std::make_unique<MessageSources>(
        setting, emu::TrafficClass::control, PatternKind::uniform, seed * 2 + 3));
  }
  return workload;
}

}  // namespace tools
