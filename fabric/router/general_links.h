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
  QueueBits credits = 0;  // at most one a queue of the sender's
};

class Links {
 public:
  Links(const Graph& graph, int delay);

  // The cycle that is stepped: what arrives in it is read, what is sent leaves in it.
  void turn_to(emu::Cycle now) {
    const std::size_t then = row(now + static_cast<emu::Cycle>(delay_));
    here_ = boxes_.data() + row(now) * far_.size();
    there_ = boxes_.data() + then * far_.size();
    ports_here_ = ports_.data() + row(now) * units_;
    ports_there_ = ports_.data() + then * units_;
  }
  // Ports of a unit to which something comes, and what.
  PortBits ports_with(unsigned unit) const { return ports_here_[unit]; }
  Inbox& inbox(unsigned unit, unsigned port) { return here_[first_[unit] + port]; }
  // It has been taken: of one port; which ports; both, of all.
  static void clear_box(Inbox& box) {
    box.has_flit = false;
    box.credits = 0;
  }
  void clear_ports(unsigned unit) { ports_here_[unit] = 0; }
  void clear(unsigned unit);
  // What comes in another cycle, up to a link's delay from now.
  const Inbox& inbox_in(emu::Cycle cycle, unsigned unit, unsigned port) const {
    return boxes_[row(cycle) * far_.size() + first_[unit] + port];
  }
  bool connected(unsigned unit, unsigned port) const { return far(unit, port).unit != kNowhere; }

  // From this port over its link.
  void send(unsigned unit, unsigned port, unsigned lane, const Flit& flit) {
    Inbox& box = far_box(unit, port);
    box.flit = flit;
    box.lane = static_cast<std::uint8_t>(lane);
    box.has_flit = true;
  }
  void credit(unsigned unit, unsigned port, unsigned queue) {
    far_box(unit, port).credits |= queue_bit(queue);
  }

  struct End {
    std::uint32_t unit;
    std::uint32_t port;
    std::uint32_t box;  // of the port among all ports
  };
  const End& far(unsigned unit, unsigned port) const { return far_[first_[unit] + port]; }

 private:
  static constexpr std::uint32_t kNowhere = ~std::uint32_t{0};
  std::size_t row(emu::Cycle cycle) const { return cycle & mask_; }
  Inbox& far_box(unsigned unit, unsigned port) {
    const End& end = far(unit, port);
    ports_there_[end.unit] |= port_bit(end.port);
    return there_[end.box];
  }

  int delay_;
  std::size_t mask_;
  std::size_t units_;
  std::vector<std::uint32_t> first_;  // [unit] its port 0 among all ports
  std::vector<End> far_;              // [port of all ports]
  std::vector<Inbox> boxes_;          // [row][port of all ports]
  std::vector<PortBits> ports_;       // [row][unit] where something comes
  Inbox* here_ = nullptr;             // rows of this cycle
  Inbox* there_ = nullptr;
  PortBits* ports_here_ = nullptr;
  PortBits* ports_there_ = nullptr;
};

}  // namespace fabric::general
