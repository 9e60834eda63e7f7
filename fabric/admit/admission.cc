#include "fabric/admit/admission.h"

#include "emu/base/check.h"

namespace fabric {

Admission::Admission(std::span<const int> ports_of_router, const BookLimits& limits, bool enabled)
    : counts_(ports_of_router.size()), changes_(ports_of_router.size()), enabled_(enabled) {
  for (const int ports : ports_of_router) books_.emplace_back(ports, limits);
}

void Admission::probe(emu::RouterId router, emu::PortId in, emu::PortId out, ProbeState& probe,
                      emu::Vl vl_out) {
  CHECK(router < books_.size());
  if (!enabled_ || probe.rejected_by != emu::kNoRouter) return;
  const emu::ProbeBody& body = probe.body;
  const emu::Vl vl_in = probe.hops++ == 0 ? body.vl_in : probe.vl_in;
  probe.vl_in = vl_out;
  const Demand demand{body.rate_bps, body.peak_bps, vl_out, vl_in};
  const BookResult result = books_[router].book({body.source, body.connection}, in, out, demand);
  AdmissionCounts& counts = counts_[router];
  switch (result) {
    case BookResult::booked:
      ++counts.admitted;
      ++changes_[router];
      break;
    case BookResult::already:
      ++counts.repeated;
      break;
    default:
      ++counts.refused[static_cast<std::size_t>(result)];
      probe.rejected_by = router;
  }
}

void Admission::release(emu::RouterId router, const emu::ProbeBody& body) {
  CHECK(router < books_.size());
  // Also while admission is off: what was booked before must not stay.
  if (!books_[router].release({body.source, body.connection})) return;
  ++counts_[router].released;
  ++changes_[router];
}

emu::Answer Admission::answer(const ProbeState& probe, emu::Cycle now) {
  emu::Answer answer{};
  answer.connection = probe.body.connection;
  answer.cycle = now;
  answer.rejected_by = probe.rejected_by;
  answer.verdict = probe.rejected_by == emu::kNoRouter ? emu::Verdict::ack : emu::Verdict::nack;
  return answer;
}

std::uint32_t Admission::release_node(emu::NodeId node) {
  std::uint32_t total = 0;
  for (std::size_t router = 0; router < books_.size(); ++router) {
    const std::uint32_t released = books_[router].release_node(node);
    counts_[router].released += released;
    if (released != 0) ++changes_[router];
    total += released;
  }
  return total;
}

}  // namespace fabric
