// Admission hop by hop (ACP 4.1): what each router does when it routes the header of a probe or a
// release. State of all routers of a fabric; the engine calls at_router() at stage 2.
// In: where a header is and where it goes. Out: verdict in the probe itself, counts for metrics.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "emu/base/units.h"
#include "emu/wire/message.h"
#include "fabric/admit/book.h"

namespace fabric {

// What a probe or release carries through the fabric beside its body. The engine keeps it with the
// message; it starts as {body, kNoRouter}.
struct ProbeState {
  emu::ProbeBody body;
  emu::RouterId rejected_by = emu::kNoRouter;
  std::uint16_t hops = 0;  // routers it has asked
  emu::Vl vl_in = 0;       // the connection's lane on the link to the next router
};

struct AdmissionCounts {
  std::uint64_t admitted = 0;  // new bookings
  std::uint64_t repeated = 0;  // probes of what was booked already
  std::uint64_t released = 0;
  std::array<std::uint64_t, 6> refused{};  // by BookResult
};

class Admission {
 public:
  // `ports_of_router[i]`: ports of router i. Limits are per router alike.
  Admission(std::span<const int> ports_of_router, const BookLimits& limits, bool enabled);

  // Book::set_router_ports of a router.
  void set_router_ports(emu::RouterId router, std::uint64_t ports) {
    books_[router].set_router_ports(ports);
  }

  // A probe's header leaves stage 2 of `router`, having come in by `in`, for `out`. Books, or marks
  // the probe with this router; a probe marked before books no more. Idempotent. `vl_out`: the
  // lane on that link that stands for the connection's.
  void probe(emu::RouterId router, emu::PortId in, emu::PortId out, ProbeState& probe,
             emu::Vl vl_out);
  // A release's header: gives back what this router had booked for it, if anything.
  void release(emu::RouterId router, const emu::ProbeBody& body);
  // What the destination answers for a probe that has arrived.
  static emu::Answer answer(const ProbeState& probe, emu::Cycle now);

  // Of a node that nobody is left of who could send releases: everything, everywhere.
  std::uint32_t release_node(emu::NodeId node);

  bool enabled() const { return enabled_; }
  void set_enabled(bool enabled) { enabled_ = enabled; }  // off: every probe is granted, unbooked
  void set_power_control(bool on) {
    for (Book& book : books_) book.set_power_control(on);
  }
  int router_count() const { return static_cast<int>(books_.size()); }
  const Book& book(emu::RouterId router) const { return books_[router]; }
  const AdmissionCounts& counts(emu::RouterId router) const { return counts_[router]; }
  // Raised whenever a book changed: arbiter weights of that router are due (see weights.h).
  std::uint64_t changes(emu::RouterId router) const { return changes_[router]; }

 private:
  std::vector<Book> books_;
  std::vector<AdmissionCounts> counts_;
  std::vector<std::uint64_t> changes_;
  bool enabled_;
};

}  // namespace fabric
