// Peak power at the HCA (ACP section 5): before a packet leaves, its energy must fit the HCA's
// budget, which it holds until it has come back. Launch times lie ahead of now and come in any
// order, so the budget is a calendar: energy held in each bucket of a few cycles. In: energy,
// duration and the cycle wished for; out: the first cycle at which it fits. Rounded so that the
// budget is never exceeded. Called for each metered packet, and a packet holds its energy for some
// hundred cycles: so energy is counted in small units and eight buckets, a row, are looked at or
// added to at once.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <vector>

#include "emu/base/units.h"
#include "emu/energy/meter.h"

namespace hca {

// Energy that best effort may hold at once: `packets` times `packet_pj` (one that is full and goes
// to the farthest node), but no more than its power brings in a window of the meter, for it would
// be above the cap in that. One packet always: less would let none go.
inline double best_effort_budget_pj(double packet_pj, std::uint32_t packets, double pj_per_cycle) {
  const double window_pj = pj_per_cycle * static_cast<double>(emu::kPowerWindowCycles);
  return std::min(packets * packet_pj, std::max(packet_pj, window_pj));
}

class EnergyCalendar {
 public:
  static constexpr emu::Cycle kBucketCycles = 4;  // what rounding costs a packet of 40 flits: 5 %

  EnergyCalendar(double budget_pj, emu::Cycle horizon_cycles)
      : units_per_pj_(budget_pj > 0 ? kBudget / budget_pj : 0.0),
        buckets_(horizon_cycles / kBucketCycles + kMarginBuckets),
        rows_(std::bit_ceil(buckets_ / kLanes + 2)) {}

  // Forgets the past. Must be called with a `now` that never falls before others are.
  void advance(emu::Cycle now) {
    const std::uint64_t bucket = now / kBucketCycles;
    if (bucket <= base_) return;
    // A row is forgotten when all of it has passed; the ring has more than can be in use.
    const std::uint64_t last = std::min(bucket / kLanes, base_ / kLanes + rows_.size());
    for (std::uint64_t row = base_ / kLanes; row < last; ++row) row_at(row) = Row{};
    base_ = bucket;
  }

  // Whether what is held at `cycle` can be told.
  bool covers(emu::Cycle cycle) const { return cycle / kBucketCycles < base_ + buckets_; }

  // First cycle >= wish (and >= now) at which `energy_pj` fits for `duration` cycles; kNever: not
  // within the horizon, or not up to `most`.
  emu::Cycle earliest(emu::Cycle wish, double energy_pj, emu::Cycle duration,
                      emu::Cycle most = emu::kNever) const {
    const auto room = static_cast<std::int16_t>(kBudget - units_of(energy_pj));
    const std::uint64_t end = base_ + buckets_;
    std::uint64_t start = std::max(wish / kBucketCycles, base_);
    std::uint64_t last = last_bucket(wish, start, duration);
    for (std::uint64_t bucket = start; last < end && start <= most / kBucketCycles;) {
      if (bucket > last) return bucket_start(wish, start);
      const std::uint64_t row = bucket / kLanes;
      const std::uint64_t upto = std::min((row + 1) * kLanes, last + 1);
      if (!any(row_at(row) > room)) {
        bucket = upto;
        continue;
      }
      // The last bucket of this row without room is what the start has to pass.
      const std::uint64_t free_from = row * kLanes + behind_last_above(row, room, upto);
      if (free_from > bucket) {
        start = free_from;
        last = last_bucket(wish, start, duration);
      }
      bucket = upto;
    }
    return emu::kNever;
  }

  // Holds the energy from `cycle` on; with or without room (acknowledgements do not wait).
  void hold(emu::Cycle cycle, double energy_pj, emu::Cycle duration) {
    const std::int16_t units = units_of(energy_pj);
    const std::uint64_t first = std::max(cycle / kBucketCycles, base_);
    const std::uint64_t last =
        (std::max(cycle, base_ * kBucketCycles) + duration - 1) / kBucketCycles;
    const std::uint64_t stop = std::min(last + 1, base_ + buckets_);
    if (stop <= first) return;
    const std::uint64_t first_row = first / kLanes;
    const std::uint64_t last_row = (stop - 1) / kLanes;
    const auto from = static_cast<std::int16_t>(first - first_row * kLanes);
    const auto upto = static_cast<std::int16_t>(stop - last_row * kLanes);
    const Row all = Row{} + units;
    const Row head = (kLane >= from) & all;
    if (first_row == last_row) {
      add(first_row, (kLane < upto) & head);
      return;
    }
    add(first_row, head);
    for (std::uint64_t row = first_row + 1; row < last_row; ++row) add(row, all);
    add(last_row, (kLane < upto) & all);
  }

 private:
  // Energy is rounded up to one of so many parts of the budget; a third of the budget is exactly a
  // third of them. What is held beyond the budget is counted up to kFull, so that sums fit.
  static constexpr std::int16_t kBudget = 15120;
  static constexpr std::int16_t kFull = kBudget + 1;
  static_assert(kFull + kBudget <= INT16_MAX);
  static constexpr double kRoundingSlack = 1e-9;  // of arithmetic, in units

  static constexpr std::uint64_t kLanes = 8;
  using Row [[gnu::vector_size(kLanes * sizeof(std::int16_t))]] = std::int16_t;
  using Halves [[gnu::vector_size(kLanes * sizeof(std::int16_t))]] = std::uint64_t;
  static constexpr Row kLane = {0, 1, 2, 3, 4, 5, 6, 7};

  static constexpr std::uint64_t kMarginBuckets = 1024;  // shifts, late packets

  static emu::Cycle bucket_start(emu::Cycle wish, std::uint64_t bucket) {
    return std::max(wish, bucket * kBucketCycles);
  }
  static std::uint64_t last_bucket(emu::Cycle wish, std::uint64_t start, emu::Cycle duration) {
    return (bucket_start(wish, start) + duration - 1) / kBucketCycles;
  }

  std::int16_t units_of(double energy_pj) const {
    const double units = std::min(energy_pj * units_per_pj_, double{kBudget});
    return static_cast<std::int16_t>(units + (1.0 - kRoundingSlack));
  }

  Row& row_at(std::uint64_t row) { return rows_[row & (rows_.size() - 1)]; }
  const Row& row_at(std::uint64_t row) const { return rows_[row & (rows_.size() - 1)]; }

  void add(std::uint64_t row, Row units) {
    const Row held = row_at(row) + units;
    row_at(row) = held < kFull ? held : Row{} + kFull;
  }

  static bool any(Row mask) {
    const auto halves = std::bit_cast<Halves>(mask);
    return (halves[0] | halves[1]) != 0;
  }

  // Of the buckets of `row` before bucket `upto`: one behind the last that holds more than `room`;
  // 0: none does.
  std::uint64_t behind_last_above(std::uint64_t row, std::int16_t room, std::uint64_t upto) const {
    const auto before = static_cast<std::int16_t>(upto - row * kLanes);
    const auto above = std::bit_cast<Halves>((row_at(row) > room) & (kLane < before));
    const std::uint64_t half = above[1] != 0 ? above[1] : above[0];
    const auto lane = static_cast<std::uint64_t>(64 + 15 - std::countl_zero(half)) / 16;
    return half == 0 ? 0 : lane + (above[1] != 0 ? kLanes / 2 : 0);
  }

  double units_per_pj_;
  std::uint64_t buckets_;   // that may hold something, from base_ on
  std::vector<Row> rows_;   // a power of two of them, each with the units held in eight buckets
  std::uint64_t base_ = 0;  // bucket of now
};

// Where earlier searches of calendars ended. What they hold only grows until it is past, so what
// did not fit before some cycle will not, nor will anything larger: a queue of packets that all
// want to leave now need not look at the full part of the calendars again and again. Results are
// the same as without it.
class Searched {
 public:
  // A packet of `energy_pj` that may not leave before `wish` may not leave before the result.
  emu::Cycle start(emu::Cycle wish, double energy_pj) const {
    emu::Cycle at = wish;
    for (const Range& range : ranges_) {
      if (range.energy_pj <= energy_pj && range.from <= wish) at = std::max(at, range.upto);
    }
    return at;
  }

  // It did not fit from `wish` up to before `upto`.
  void nothing_before(emu::Cycle now, emu::Cycle wish, emu::Cycle upto, double energy_pj) {
    Range* range = &ranges_[0];
    for (Range& other : ranges_) {
      if (other.energy_pj == energy_pj) {
        range = &other;
        break;
      }
      if (other.upto < range->upto) range = &other;
    }
    const bool same = range->energy_pj == energy_pj && range->upto > now;
    if (same && wish > range->upto) return;  // a gap between them: the near one is worth more
    *range = {energy_pj, same ? std::min(range->from, wish) : wish, upto};
  }

 private:
  struct Range {
    double energy_pj = 0;
    emu::Cycle from = emu::kNever;
    emu::Cycle upto = 0;
  };
  std::array<Range, 4> ranges_{};
};

}  // namespace hca
