// Whether the network card that a DPDK port drives has a link. Drivers over an interface of the
// kernel's (af_packet, af_xdp) say of themselves that it is always up: there the kernel is heard
// (rtnetlink), of a card that DPDK has for itself the driver is asked.
#pragma once

#include <cstdint>
#include <string>

#include "emu/ring/fd.h"

namespace fabric {

class LinkWatch {
 public:
  // `interface`: number of the kernel's interface; 0: there is none. One that is deleted and made
  // anew has another number, but the same name: then that one is heard.
  LinkWatch(std::uint16_t port, unsigned interface);

  // Reads what has happened since the last call. Never blocks.
  void look();
  bool up() const { return up_; }
  // Whether it was down, for however short a time, before the last call of look().
  bool was_down() const { return was_down_; }

 private:
  void hear(std::uint32_t flags);
  void read_events();

  std::uint16_t port_;
  unsigned interface_;
  std::string name_;  // of the interface
  emu::UniqueFd netlink_;
  bool up_ = true;
  bool was_down_ = false;
};

}  // namespace fabric
