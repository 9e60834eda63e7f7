// The fabric's shared page as hcad sees it: what the routers look like and what they tell sources,
// for a congestion scheme that asks, and how long the ways are (emu/wire/state_page.h). In: the
// page's pictures, notices and ways. Out: fabric_state() of the host half, once for each new
// picture, notice() and set_ways(). Called by the loop; costs a comparison where the scheme does
// not ask.
#pragma once

#include <optional>
#include <string>

#include "emu/config/config.h"
#include "emu/wire/state_page.h"
#include "hca/host/host.h"

namespace hca {

class SideBand {
 public:
  SideBand(std::string path, const emu::Config& config, emu::NodeId node);
  // The scheme in force may have become another one.
  void follow_scheme(const Host& host);
  // True: there was something to tell.
  bool tell(Host& host, emu::Cycle now) {
    return needs_ != Signal::nothing && open() && tell_needed(host, now);
  }
  // Ways, if links went or came since the last call. Rare work.
  void follow_ways(Host& host);
  // The fabric is another one now.
  void close() {
    page_.reset();
    heard_.reset();
    ways_ = 0;
  }

 private:
  bool open();
  bool tell_needed(Host& host, emu::Cycle now);
  bool look(Host& host, emu::Cycle now);
  bool listen(Host& host, emu::Cycle now);

  std::string path_;
  emu::NodeId node_;
  std::size_t nodes_;
  std::uint16_t lanes_;  // of best effort
  Signal needs_ = Signal::nothing;
  std::optional<emu::StateReader> page_;
  emu::Cycle told_ = 0;     // the picture that was told last
  std::uint64_t ways_ = 0;  // the page's, as they were told last
  emu::NodeView view_;
  std::optional<std::uint64_t> heard_;  // of the notices, while the scheme wants them
};

}  // namespace hca
