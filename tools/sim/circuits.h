// Circuits of a run's streams, opened before it starts (MediaWorm V.F): connections ask one after
// another until the load is there; each draws its lane at every output, as the paper draws the
// destination VC, and is dropped where another has it. In: streams in the order in which they ask.
// Out: the number of each stream's circuit at its node; 0: it has none.
#pragma once

#include <cstdint>
#include <vector>

#include "emu/base/prng.h"
#include "fabric/router/control_hook.h"
#include "fabric/router/network.h"
#include "tools/sim/workload.h"

namespace tools {

class Circuits : public fabric::ControlHook {
 public:
  Circuits(std::uint32_t lanes, std::uint64_t seed) : lanes_(lanes), prng_(seed) {}

  // Opens circuits until one more would bring their sum no nearer to `wanted_bps`, or all streams
  // have asked. A node that has no lane left for another circuit does not ask.
  void open(fabric::Network& network, const std::vector<StreamDemand>& demands, double wanted_bps);
  const std::vector<std::uint16_t>& of_stream() const { return of_stream_; }
  std::uint64_t asked() const { return asked_; }
  std::uint64_t granted() const { return granted_; }

 private:
  struct Place {
    emu::RouterId router;
    emu::PortId port;
    std::uint32_t lane;
    friend bool operator==(const Place&, const Place&) = default;
  };
  bool at_route(const fabric::ControlHead& head) override;
  bool ask(fabric::Network& network, const StreamDemand& demand, std::uint16_t number);

  std::uint32_t lanes_;
  emu::Prng prng_;
  std::vector<Place> taken_;
  std::vector<std::uint16_t> of_stream_;
  std::uint64_t asked_ = 0;
  std::uint64_t granted_ = 0;
};

}  // namespace tools
