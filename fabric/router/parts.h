// A network in parts, a thread each, which meet only through links. Each part has the launches and
// events of its own HCAs. What engine.h and block_engine.h have in common: who runs which cycles.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "emu/lane/isa.h"
#include "emu/lane/stamp.h"
#include "fabric/crew/crew.h"
#include "fabric/router/impl.h"

namespace fabric {

class Parts {
 public:
  using Step = std::function<void(std::size_t part, emu::Cycle from, emu::Cycle end)>;
  struct Range {
    std::size_t first;
    std::size_t end;
  };

  // Routers are stepped in so many units, HCAs `hcas_together` (a multiple of 8): each part has a
  // range of either. `step` runs the cycles of one part, by run().
  Parts(Network::Impl& network, std::size_t router_units, std::size_t hcas_together, Step step)
      : network_(network),
        router_units_(router_units),
        hca_units_(units(network.graph.nodes.size(), hcas_together)),
        step_(std::move(step)) {
    if (count() == 1) return;
    events_.reserve(count());
    for (std::size_t part = 0; part < count(); ++part) {
      events_.emplace_back(network.messages.size()).digest = 0;
      const std::size_t groups = hcas_together / emu::kPortsMax;
      const Range range = hcas_of(part);
      for (std::size_t g = range.first * groups;
           g < std::min(range.end * groups, network.part_of_group.size()); ++g)
        network.part_of_group[g] = static_cast<std::uint8_t>(part);
    }
    if (network.hook != nullptr) {
      gate_.behind = network.hook;
      network.hook = &gate_;
    }
    crew_ = std::make_unique<Crew>(static_cast<int>(count()), [this](int part) {
      step_(static_cast<std::size_t>(part), network_.now, stretch_end_);
    });
  }

  std::size_t count() const { return network_.parts; }
  // Cycles that one part may be stepped before another.
  int ahead() const { return count() == 1 ? 1 : network_.spec.link_delay; }
  Range routers_of(std::size_t part) const {
    return {part * router_units_ / count(), (part + 1) * router_units_ / count()};
  }
  // Rounded up where routers are rounded down: what is left over goes to the first parts.
  Range hcas_of(std::size_t part) const {
    const auto first = [&](std::size_t p) { return (p * hca_units_ + count() - 1) / count(); };
    return {first(part), first(part + 1)};
  }
  hca::Events& events_of(std::size_t part) {
    return count() == 1 ? network_.events : events_[part];
  }

  // Executes cycles of all parts; windows and epochs end where they are due.
  void step(emu::Cycle cycles) {
    Network::Impl& n = network_;
    for (const emu::Cycle end = n.now + cycles; n.now != end;) {
      const emu::Cycle epoch = n.now - n.now % emu::kStampPeriod + emu::kStampPeriod;
      const emu::Cycle due = std::min({end, n.next_window, epoch});
      if (n.idle()) n.now = std::max(n.now, std::min(due, n.next_launch()));
      if (n.now != due) advance(due);
      n.now = due;
      if (n.now == n.next_window) n.close_window();
      if (n.now == epoch) n.age(emu::kStampPeriod);
    }
  }

  // `ready(message, cycle)`: its launch has come; `cycles(from, end)`: steps the part's units.
  template <class Ready, class Cycles>
  void run(std::size_t part, emu::Cycle from, emu::Cycle end, Ready&& ready, Cycles&& cycles) {
    if (count() == 1) return run_apart(part, from, end, ready, cycles);
    // What a part puts on a link is read a link's delay later: so far parts may be apart.
    const auto apart = static_cast<emu::Cycle>(ahead());
    while (from != end) {
      const emu::Cycle meeting = std::min(end, from + apart);
      run_apart(part, from, meeting, ready, cycles);
      from = meeting;
      crew_->meet();
    }
  }

 private:
  // Admission is one for all routers and knows no threads. Control packets are rare.
  struct Gate final : ControlHook {
    bool at_route(const ControlHead& head) override {
      const std::scoped_lock lock(busy);
      return behind->at_route(head);
    }
    ControlHook* behind = nullptr;
    std::mutex busy;
  };

  // Nothing but launches and flits is due before cycle `end`.
  void advance(emu::Cycle end) {
    if (count() == 1) return step_(0, network_.now, end);
    stretch_end_ = end;
    crew_->run();
    network_.events.take(events_);
  }

  static std::size_t units(std::size_t count, std::size_t together) {
    return (count + together - 1) / together;
  }

  template <class Ready, class Cycles>
  void run_apart(std::size_t part, emu::Cycle cycle, emu::Cycle end, Ready& ready, Cycles& cycles) {
    hca::LaunchQueue& launches = network_.launches[part];
    hca::Events& events = events_of(part);
    while (cycle != end) {
      while (launches.next() <= cycle) {
        ++events.live;
        ready(launches.pop(), cycle);
      }
      const emu::Cycle due = std::min(end, launches.next());
      if (count() != 1 || !network_.idle_at(cycle)) cycles(cycle, due);
      cycle = due;
    }
  }

  Network::Impl& network_;
  std::size_t router_units_;
  std::size_t hca_units_;
  Step step_;
  std::vector<hca::Events> events_;  // [part], if there are several; joined to the network's
  emu::Cycle stretch_end_ = 0;
  Gate gate_;
  // Between steps its threads wait and touch nothing of the engine, so that what they step may be
  // destroyed first.
  std::unique_ptr<Crew> crew_;
};

// One part of an engine, by its `run`: the same code three times, for what the processor can do; a
// build must run on all of them.
#if defined(__x86_64__)
template <class Engine>
FLITNET_AVX2 FLITNET_WHOLE_STEP void step_avx2(Engine& engine, std::size_t part, emu::Cycle from,
                                               emu::Cycle end) {
  engine.template run<emu::kStepsByAvx2 ? emu::Isa::avx2 : emu::Isa::base>(part, from, end);
}
template <class Engine>
FLITNET_AVX512 FLITNET_WHOLE_STEP void step_avx512(Engine& engine, std::size_t part,
                                                   emu::Cycle from, emu::Cycle end) {
  engine.template run<emu::Isa::avx512>(part, from, end);
}
#endif
template <class Engine>
void step_part(Engine& engine, [[maybe_unused]] emu::Isa isa, std::size_t part, emu::Cycle from,
               emu::Cycle end) {
#if defined(__x86_64__)
  if constexpr (Engine::kStepsByAvx512) {
    if (isa == emu::Isa::avx512) return step_avx512(engine, part, from, end);
  }
  if constexpr (emu::kStepsByAvx2) {
    if (isa != emu::Isa::base) return step_avx2(engine, part, from, end);
  }
#endif
  engine.template run<emu::Isa::base>(part, from, end);
}

}  // namespace fabric
