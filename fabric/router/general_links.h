// What is on the links: for each port of each unit one flit and some credits a cycle, in a wheel of
// cycles, so that the order in which units are stepped does not matter. Units are the routers, then
// the HCAs, whose only port is 0. Written by the sender, cleared by the receiver.
#pragma once

#include <array>
#include <vector>

#include "fabric/router/general_flit.h"
#include "fabric/topo/graph.h"

namespace fabric::general {

struct Inbox {
  Flit flit;
  std::uint8_t lane = 0;
  bool has_flit = false;
  std::array<LaneBits, kLevelsMax> credits{};  // [level] at most one a lane
};

class Links {
 public:
  Links(const Graph& graph, int delay);

  PortBits ports_with(unsigned unit, emu::Cycle now) const {
    return ports_[row(now) * units_ + unit];
  }
  Inbox& inbox(unsigned unit, unsigned port, emu::Cycle now) {
    return boxes_[row(now) * far_.size() + first_[unit] + port];
  }
  const Inbox& inbox(unsigned unit, unsigned port, emu::Cycle now) const {
    return boxes_[row(now) * far_.size() + first_[unit] + port];
  }
  // What came to a port has been taken; what came to all of a unit; both.
  static void clear_box(Inbox& box) {
    box.has_flit = false;
    box.credits = {};
  }
  void clear_ports(unsigned unit, emu::Cycle now) { ports_[row(now) * units_ + unit] = 0; }
  void clear(unsigned unit, emu::Cycle now);
  bool connected(unsigned unit, unsigned port) const { return far(unit, port).unit != kNowhere; }

  // From this port over its link.
  void send(unsigned unit, unsigned port, unsigned lane, const Flit& flit, emu::Cycle now) {
    Inbox& box = far_box(unit, port, now);
    box.flit = flit;
    box.lane = static_cast<std::uint8_t>(lane);
    box.has_flit = true;
  }
  void credit(unsigned unit, unsigned port, unsigned lane, unsigned level, emu::Cycle now) {
    far_box(unit, port, now).credits[level] |= LaneBits{1} << lane;
  }

  struct End {
    std::uint32_t unit;
    std::uint32_t port;
  };
  const End& far(unsigned unit, unsigned port) const { return far_[first_[unit] + port]; }
  int delay() const { return delay_; }

 private:
  static constexpr std::uint32_t kNowhere = ~std::uint32_t{0};
  std::size_t row(emu::Cycle cycle) const { return cycle & mask_; }
  Inbox& far_box(unsigned unit, unsigned port, emu::Cycle now) {
    const End& end = far(unit, port);
    const emu::Cycle then = now + static_cast<emu::Cycle>(delay_);
    ports_[row(then) * units_ + end.unit] |= PortBits{1} << end.port;
    return inbox(end.unit, end.port, then);
  }

  int delay_;
  std::size_t mask_;
  std::size_t units_;
  std::vector<std::uint32_t> first_;  // [unit] its port 0 among all ports
  std::vector<End> far_;              // [port of all ports]
  std::vector<Inbox> boxes_;          // [row][port of all ports]
  std::vector<PortBits> ports_;       // [row][unit] where something comes
};

}  // namespace fabric::general
