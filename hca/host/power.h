// Peak power at the HCA (ACP section 5): before a packet leaves, its energy must fit the HCA's
// budget, which it holds until it has come back. Launch times lie ahead of now and come in any
// order, so the budget is a calendar: energy held in each bucket of a few cycles. In: energy,
// duration and the cycle wished for; out: the first cycle at which it fits. Rounded so that the
// budget is never exceeded. Called for each metered packet, and a packet holds its energy for some
// hundred cycles: so buckets form blocks, of which the highest bucket is known and to which energy
// is added at once.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <vector>

#include "emu/base/check.h"
#include "emu/base/units.h"

namespace hca {

class EnergyCalendar {
 public:
  static constexpr emu::Cycle kBucketCycles = 4;  // what rounding costs a packet of 40 flits: 5 %

  EnergyCalendar(double budget_pj, emu::Cycle horizon_cycles)
      : budget_pj_(budget_pj),
        buckets_(horizon_cycles / kBucketCycles + kMarginBuckets),
        held_(std::bit_ceil(buckets_ + kBlock), 0.0),
        whole_(held_.size() / kBlock, 0.0),
        top_(held_.size() / kBlock, 0.0) {}

  double budget_pj() const { return budget_pj_; }
  void set_budget_pj(double budget_pj) { budget_pj_ = budget_pj; }

  // Forgets the past. Must be called with a `now` that never falls before others are.
  void advance(emu::Cycle now) {
    const std::uint64_t bucket = now / kBucketCycles;
    if (bucket <= base_) return;
    // A block is forgotten when all of it has passed; the ring has one more than can be in use.
    const std::uint64_t last = std::min(bucket, base_ + held_.size()) / kBlock;
    for (std::uint64_t block = base_ / kBlock; block < last; ++block) forget(block);
    base_ = bucket;
    full_until_ = std::max(full_until_, base_);
  }

  // First cycle >= wish (and >= now) at which `energy_pj` fits for `duration` cycles; kNever: not
  // within the horizon, or not up to `most`.
  emu::Cycle earliest(emu::Cycle wish, double energy_pj, emu::Cycle duration,
                      emu::Cycle most = emu::kNever) {
    const double room_pj = budget_pj_ - std::min(energy_pj, budget_pj_);
    const std::uint64_t end = base_ + buckets_;
    // Buckets below full_until_ have no room for the smallest packet seen: skipped at once.
    std::uint64_t start = std::max({wish / kBucketCycles, base_, full_until_});
    std::uint64_t last = last_bucket(wish, start, duration);
    for (std::uint64_t bucket = start; last < end && start <= most / kBucketCycles;) {
      if (bucket > last) return bucket_start(wish, start);
      const std::uint64_t block_end = (bucket / kBlock + 1) * kBlock;
      if (top_[block_of(bucket)] <= room_pj) {
        bucket = block_end;
        continue;
      }
      // Backwards: the last bucket without room is what the start has to pass.
      const std::uint64_t upto = std::min(block_end, last + 1);
      std::uint64_t free_from = upto;
      while (free_from > bucket && at(free_from - 1) <= room_pj) --free_from;
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
    const std::uint64_t first = std::max(cycle / kBucketCycles, base_);
    const std::uint64_t last =
        (std::max(cycle, base_ * kBucketCycles) + duration - 1) / kBucketCycles;
    const std::uint64_t end = base_ + buckets_;
    const std::uint64_t stop = std::min(last + 1, end);
    for (std::uint64_t bucket = first; bucket < stop;) {
      const std::uint64_t upto = std::min((bucket / kBlock + 1) * kBlock, stop);
      add(bucket, upto, energy_pj);
      bucket = upto;
    }
    smallest_pj_ = std::min(smallest_pj_, energy_pj);
    while (full_until_ < end && full_until_ >= base_ &&
           at(full_until_) + smallest_pj_ > budget_pj_) {
      ++full_until_;
    }
  }

  double held_pj(emu::Cycle cycle) const {
    const std::uint64_t bucket = cycle / kBucketCycles;
    if (bucket < base_ || bucket >= base_ + buckets_) return 0.0;
    return at(bucket);
  }

 private:
  static constexpr std::uint64_t kBlock = 16;
  static constexpr std::uint64_t kMarginBuckets = 1024;  // the last packets still end inside

  static emu::Cycle bucket_start(emu::Cycle wish, std::uint64_t bucket) {
    return std::max(wish, bucket * kBucketCycles);
  }

  static std::uint64_t last_bucket(emu::Cycle wish, std::uint64_t start, emu::Cycle duration) {
    return (bucket_start(wish, start) + duration - 1) / kBucketCycles;
  }

  std::uint64_t index_of(std::uint64_t bucket) const { return bucket & (held_.size() - 1); }
  std::uint64_t block_of(std::uint64_t bucket) const { return index_of(bucket) / kBlock; }
  double at(std::uint64_t bucket) const {
    return held_[index_of(bucket)] + whole_[block_of(bucket)];
  }

  void forget(std::uint64_t block) {
    const std::uint64_t first = index_of(block * kBlock);
    std::fill_n(&held_[first], kBlock, 0.0);
    whole_[first / kBlock] = top_[first / kBlock] = 0.0;
  }

  // Buckets [first, upto) of one block.
  void add(std::uint64_t first, std::uint64_t upto, double energy_pj) {
    const std::uint64_t block = block_of(first);
    if (upto - first == kBlock) {
      whole_[block] += energy_pj;
      top_[block] += energy_pj;
      return;
    }
    double* held = &held_[index_of(first)];
    double top = 0.0;
    for (std::uint64_t i = 0; i < upto - first; ++i) top = std::max(top, held[i] += energy_pj);
    top_[block] = std::max(top_[block], top + whole_[block]);
  }

  double budget_pj_;
  std::uint64_t buckets_;         // that may hold something, from base_ on
  std::vector<double> held_;      // a power of two of them; a bucket holds this and its block's
  std::vector<double> whole_;     // per block: held by each of its buckets
  std::vector<double> top_;       // per block: what its fullest bucket holds
  std::uint64_t base_ = 0;        // bucket of now
  std::uint64_t full_until_ = 0;  // every bucket before it is full
  double smallest_pj_ = 1e300;
};

}  // namespace hca
