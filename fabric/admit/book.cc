#include "fabric/admit/book.h"

#include <algorithm>

#include "emu/base/check.h"

namespace fabric {

std::size_t ConnectionKeyHash::operator()(const ConnectionKey& key) const noexcept {
  // Ids are chosen by senders, who may be hostile: mix all bits (splitmix64).
  std::uint64_t z = key.connection + (std::uint64_t{key.node} << 48) + 0x9e3779b97f4a7c15ULL;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
  return static_cast<std::size_t>(z ^ (z >> 31));
}

std::string_view name_of(BookResult result) {
  switch (result) {
    case BookResult::booked:
      return "booked";
    case BookResult::already:
      return "already";
    case BookResult::output_link:
      return "output_link";
    case BookResult::input_link:
      return "input_link";
    case BookResult::power:
      return "power";
    case BookResult::table:
      return "table";
  }
  return "?";
}

Book::Book(int ports, const BookLimits& limits)
    : limits_(limits),
      links_(static_cast<std::size_t>(ports)),
      bookings_of_node_(emu::kNodesVirtualMax, 0) {
  CHECK(ports > 0 && limits.flit_bits > 0);
}

Book::Rates& Book::Rates::operator+=(const Rates& other) {
  router_bps += other.router_bps;
  link_bps += other.link_bps;
  hca_bps += other.hca_bps;
  return *this;
}
Book::Rates& Book::Rates::operator-=(const Rates& other) {
  router_bps -= other.router_bps;
  link_bps -= other.link_bps;
  hca_bps -= other.hca_bps;
  return *this;
}

Book::Rates Book::rates_of(const Entry& entry) const {
  const std::uint64_t rate = entry.demand.rate_bps;
  const bool from_router = (router_ports_ >> entry.in & 1) != 0;
  const bool to_router = (router_ports_ >> entry.out & 1) != 0;
  return {rate, to_router ? rate : 0, (from_router ? 0 : rate) + (to_router ? 0 : rate)};
}

// P = E_router r / f, and the same of the link behind and of HCAs.
double Book::watts_of(const Rates& rates) const {
  return (limits_.router_flit_pj * static_cast<double>(rates.router_bps) +
          limits_.link_flit_pj * static_cast<double>(rates.link_bps) +
          limits_.hca_flit_pj * static_cast<double>(rates.hca_bps)) *
         1e-12 / limits_.flit_bits;
}

LaneRates Book::in_rates(emu::PortId port) const {
  const Link& link = links_[port];
  return {link.lane_in_bps, link.peak_in_bps, limits_.link_bps};
}

LaneRates Book::out_rates(emu::PortId port) const {
  const Link& link = links_[port];
  return {link.lane_out_bps, link.peak_out_bps, limits_.link_bps};
}

double Book::used_power_w() const { return watts_of(rates_); }

void Book::add(const Entry& entry) {
  Link& out = links_[entry.out];
  out.out_bps += entry.demand.rate_bps;
  out.peak_out_bps += entry.demand.peak_bps;
  out.lane_out_bps[entry.demand.vl] += entry.demand.rate_bps;
  Link& in = links_[entry.in];
  in.in_bps += entry.demand.rate_bps;
  in.peak_in_bps += entry.demand.peak_bps;
  in.lane_in_bps[entry.demand.vl_in] += entry.demand.rate_bps;
  rates_ += rates_of(entry);
}

void Book::subtract(const Entry& entry) {
  Link& out = links_[entry.out];
  CHECK(out.out_bps >= entry.demand.rate_bps && rates_.router_bps >= entry.demand.rate_bps);
  out.out_bps -= entry.demand.rate_bps;
  out.peak_out_bps -= entry.demand.peak_bps;
  out.lane_out_bps[entry.demand.vl] -= entry.demand.rate_bps;
  Link& in = links_[entry.in];
  in.in_bps -= entry.demand.rate_bps;
  in.peak_in_bps -= entry.demand.peak_bps;
  in.lane_in_bps[entry.demand.vl_in] -= entry.demand.rate_bps;
  rates_ -= rates_of(entry);
}

// What stands in the way of `entry`; BookResult::booked if nothing does.
BookResult Book::obstacle(const Entry& entry) const {
  const std::uint64_t rate = entry.demand.rate_bps;
  // Written as room >= rate, so that no sum can overflow.
  if (rate > limits_.link_bps - links_[entry.out].out_bps) return BookResult::output_link;
  if (rate > limits_.link_bps - links_[entry.in].in_bps) return BookResult::input_link;
  // The last booking may fill the budget exactly; rounding must not refuse it.
  Rates rates = rates_of(entry);
  const double watts = watts_of(rates += rates_);
  if (limits_.power_control && watts > limits_.power_w * (1 + 1e-9)) return BookResult::power;
  return BookResult::booked;
}

BookResult Book::book(const ConnectionKey& key, emu::PortId in, emu::PortId out,
                      const Demand& demand) {
  CHECK(in < links_.size() && out < links_.size());
  if (demand.rate_bps == 0 || key.node >= emu::kNodesVirtualMax || demand.vl >= emu::kVlCount ||
      demand.vl_in >= emu::kVlCount) {
    return BookResult::table;
  }
  Entry wanted{in, out, demand};
  wanted.demand.peak_bps =
      std::clamp(demand.peak_bps, std::min(demand.rate_bps, limits_.link_bps), limits_.link_bps);
  const auto found = entries_.find(key);
  if (found == entries_.end()) {
    if (bookings_of_node_[key.node] == kBookingsPerNodeMax) return BookResult::table;
    const BookResult result = obstacle(wanted);
    if (result != BookResult::booked) return result;
    add(wanted);
    entries_.emplace(key, wanted);
    ++bookings_of_node_[key.node];
    return BookResult::booked;
  }
  if (found->second == wanted) return BookResult::already;
  subtract(found->second);
  const BookResult result = obstacle(wanted);
  if (result == BookResult::booked) found->second = wanted;
  add(found->second);
  return result;
}

bool Book::release(const ConnectionKey& key) {
  const auto found = entries_.find(key);
  if (found == entries_.end()) return false;
  subtract(found->second);
  --bookings_of_node_[key.node];
  entries_.erase(found);
  return true;
}

std::uint32_t Book::release_node(emu::NodeId node) {
  std::uint32_t released = 0;
  if (node >= emu::kNodesVirtualMax || bookings_of_node_[node] == 0) return released;
  for (auto it = entries_.begin(); it != entries_.end();) {
    if (it->first.node != node) {
      ++it;
      continue;
    }
    subtract(it->second);
    it = entries_.erase(it);
    ++released;
  }
  bookings_of_node_[node] = 0;
  return released;
}

}  // namespace fabric
