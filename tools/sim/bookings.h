// Admission of a run's streams before it starts (ACP 4.1): the HCA's own check, a probe through the
// real network, books at the routers, NACK and release. In: streams in the order in which they ask.
// Out: which were granted. Arbiters follow the books (fabric/daemon/arbitration.h). When links go
// or come back, what is booked on ways that nobody takes any more is given back, and these streams
// ask again, as do those that were refused, while the run goes on.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "emu/config/config.h"
#include "fabric/admit/admission.h"
#include "fabric/daemon/arbitration.h"
#include "fabric/router/control_hook.h"
#include "fabric/router/network.h"
#include "tools/sim/workload.h"

namespace tools {

class Bookings : public fabric::ControlHook {
 public:
  explicit Bookings(const emu::Config& config) : config_(config) {}
  // The network asks this hook; it must be told of the network before the first probe.
  void attach(fabric::Network& network, const std::vector<StreamDemand>& demands);

  // Before the run. Steps the network until the answer is there.
  bool ask(fabric::Network& network, std::uint32_t stream);

  enum class Standing : std::uint8_t { refused, asking, granted };
  Standing standing(std::uint32_t stream) const { return streams_[stream].standing; }
  const StreamDemand& demand(std::uint32_t stream) const { return streams_[stream].demand; }
  std::uint32_t streams() const { return static_cast<std::uint32_t>(streams_.size()); }
  // During the run: after the network's links changed, and after each of its turns, before its
  // events are cleared.
  void links_changed(fabric::Network& network);
  void look(fabric::Network& network);
  // During the run: probes sent, how many of them were granted, cycles from asking to the answers.
  struct Again {
    std::uint64_t asked = 0;
    std::uint64_t granted = 0;
    std::uint64_t cycles = 0;
  };
  const Again& again() const { return again_; }
  const fabric::Admission& admission() const { return *admission_; }
  std::uint64_t asked() const { return asked_; }
  std::uint64_t granted() const { return granted_; }
  // From asking to the answer, cycles, of all that were sent as probes.
  std::uint64_t set_up_cycles() const { return set_up_cycles_; }

 private:
  bool at_route(const fabric::ControlHead& head) override;
  struct Stream {
    StreamDemand demand;
    Standing standing = Standing::refused;
    fabric::ProbeState probe;
    std::vector<fabric::Hop> booked;  // where its probe was accepted
    emu::Cycle asked = 0;
  };
  // Each asking has a connection of its own: what it left in the network is not taken for the next.
  static constexpr std::uint64_t kAskings = std::uint64_t{1} << 32;
  Stream& of(std::uint64_t connection) { return streams_[connection % kAskings]; }
  bool send(fabric::Network& network, std::uint64_t connection, emu::PacketKind kind);
  bool has_room(const StreamDemand& demand) const;
  void begin(Stream& stream);
  void ask_again(Stream& stream);
  void release_everywhere(const Stream& stream);
  void leave(Stream& stream);
  void answered(Stream& stream, emu::Cycle cycle, const fabric::Network& network);

  const emu::Config& config_;
  std::unique_ptr<fabric::Admission> admission_;
  std::unique_ptr<fabric::Arbitration> arbitration_;
  std::vector<Stream> streams_;
  std::vector<std::uint64_t> own_bps_;  // booked on the link of each HCA
  // What HCAs have yet to send.
  struct Control {
    std::uint64_t connection;
    emu::PacketKind kind;
  };
  std::vector<Control> to_send_;
  Again again_;
  std::uint64_t asked_ = 0;
  std::uint64_t granted_ = 0;
  std::uint64_t set_up_cycles_ = 0;
};

}  // namespace tools
