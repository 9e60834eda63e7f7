// What one router has promised: bandwidth of its outgoing and incoming links, and power for
// real-time traffic (ACP 4.1 and 5.1). Plain state; a connection is (source node, its id).
// Called by admission.h for every probe and release header that the router routes.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "emu/base/units.h"
#include "fabric/admit/weights.h"

namespace fabric {

struct ConnectionKey {
  emu::NodeId node = 0;
  std::uint64_t connection = 0;
  friend bool operator==(const ConnectionKey&, const ConnectionKey&) = default;
};
struct ConnectionKeyHash {
  std::size_t operator()(const ConnectionKey& key) const noexcept;
};

struct Demand {
  std::uint64_t rate_bps = 0;  // mean: booked on both links
  std::uint64_t peak_bps = 0;  // for the limit of high priority; at least rate_bps
  emu::Vl vl = 0;              // lane it will use on the outgoing link
  emu::Vl vl_in = 0;           // and on the incoming one; for the weights
  friend bool operator==(const Demand&, const Demand&) = default;
};

// A node cannot fill a router's table: the weights' unit of a large frame is finer than this.
inline constexpr std::uint32_t kBookingsPerNodeMax = 4096;

enum class BookResult : std::uint8_t {
  booked,
  already,      // the same demand is booked: repeats change nothing
  output_link,  // refused: no bandwidth on the outgoing link
  input_link,   // refused: no bandwidth on the incoming link
  power,        // refused: no power in this router
  table,        // refused: a demand of nothing, or the node has kBookingsPerNodeMax
};
constexpr bool accepted(BookResult result) { return result <= BookResult::already; }
std::string_view name_of(BookResult result);

struct BookLimits {
  std::uint64_t link_bps = 400'000'000;  // that may be booked of each link
  double power_w = 0;                    // for real-time traffic in this router
  double router_flit_pj = 0;             // E_router
  double link_flit_pj = 0;               // E_link, of outputs that lead to routers; 0: not booked
  double hca_flit_pj = 0;                // of inputs from HCAs and outputs to them
  std::uint32_t flit_bits = 128;
  bool power_control = true;
};

class Book {
 public:
  Book(int ports, const BookLimits& limits);

  // Books or says why not. A booked connection asking again with another demand or path is booked
  // anew in place of the old; if that is refused the old stays.
  BookResult book(const ConnectionKey& key, emu::PortId in, emu::PortId out, const Demand& demand);
  // Gives back what book() took; false: it had nothing.
  bool release(const ConnectionKey& key);
  // A dead node's bookings; how many there were.
  std::uint32_t release_node(emu::NodeId node);

  // Ports whose links lead to other routers, a bit each: what leaves there books the link's power
  // too; HCAs are at all others, and theirs is booked. Before the first booking.
  void set_router_ports(std::uint64_t ports) { router_ports_ = ports; }
  // Whether what comes is refused for want of power. Bookings stay: they are of rates.
  void set_power_control(bool on) { limits_.power_control = on; }
  std::uint64_t used_out_bps(emu::PortId port) const { return links_[port].out_bps; }
  std::uint64_t used_in_bps(emu::PortId port) const { return links_[port].in_bps; }
  std::uint64_t peak_out_bps(emu::PortId port) const { return links_[port].peak_out_bps; }
  // Mean rate booked per lane of an outgoing link.
  std::uint64_t lane_out_bps(emu::PortId port, emu::Vl vl) const {
    return links_[port].lane_out_bps[vl];
  }
  // What is booked on an incoming link, for the weights of the scheduler at that input.
  LaneRates in_rates(emu::PortId port) const;
  // The same of an outgoing link, for the scheduler at the output of a full crossbar.
  LaneRates out_rates(emu::PortId port) const;
  double used_power_w() const;
  std::uint32_t bookings() const { return static_cast<std::uint32_t>(entries_.size()); }
  int ports() const { return static_cast<int>(links_.size()); }
  const BookLimits& limits() const { return limits_; }

 private:
  struct Entry {
    emu::PortId in;
    emu::PortId out;
    Demand demand;
    friend bool operator==(const Entry&, const Entry&) = default;
  };
  struct Link {
    std::uint64_t out_bps = 0;
    std::uint64_t in_bps = 0;
    std::uint64_t peak_out_bps = 0;
    std::uint64_t peak_in_bps = 0;
    std::array<std::uint64_t, emu::kVlCount> lane_out_bps{};
    std::array<std::uint64_t, emu::kVlCount> lane_in_bps{};
  };
  BookResult obstacle(const Entry& entry) const;
  void add(const Entry& entry);
  void subtract(const Entry& entry);
  // Sums of rates: power is proportional to them, and whole numbers do not drift.
  struct Rates {
    std::uint64_t router_bps = 0;
    std::uint64_t link_bps = 0;  // that goes on to another router
    std::uint64_t hca_bps = 0;   // that comes from an HCA, and that goes to one
    Rates& operator+=(const Rates& other);
    Rates& operator-=(const Rates& other);
  };
  Rates rates_of(const Entry& entry) const;
  double watts_of(const Rates& rates) const;

  BookLimits limits_;
  std::vector<Link> links_;
  Rates rates_;  // of all bookings
  std::uint64_t router_ports_ = 0;
  std::unordered_map<ConnectionKey, Entry, ConnectionKeyHash> entries_;
  std::vector<std::uint32_t> bookings_of_node_;
};

}  // namespace fabric
