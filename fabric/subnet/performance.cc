// What the performance agents count (IBA 16.1): the engine's own counters, as they are now.
#include <algorithm>
#include <limits>

#include "fabric/subnet/agent.h"

namespace fabric {

namespace {

constexpr std::uint16_t kClassPortInfo = 0x01;
constexpr std::uint16_t kPortCounters = 0x12;
constexpr std::uint16_t kPortCountersExtended = 0x1d;
constexpr unsigned kAllPorts = 0xff;
constexpr std::size_t kDataAt = 64;

std::uint32_t saturated(std::uint64_t value) {
  return static_cast<std::uint32_t>(
      std::min<std::uint64_t>(value, std::numeric_limits<std::uint32_t>::max()));
}

}  // namespace

bool SubnetAgent::counters_of(const Target& target, unsigned port, Totals& totals) const {
  if (port == 0 || port > ports_of(target)) return false;
  const PortCounters counters =
      target.is_switch ? network_.router_counters(target.router, static_cast<emu::PortId>(port - 1))
                       : network_.wire_counters(target.node);
  std::uint64_t sent_flits = 0;
  std::uint64_t received_flits = 0;
  for (unsigned vl = 0; vl < emu::kVlCount; ++vl) {
    sent_flits += counters.sent[vl].flits;
    received_flits += counters.received[vl].flits;
    totals.sent += counters.sent[vl].packets;
    totals.received += counters.received[vl].packets;
  }
  totals.sent_words += sent_flits * spec_.flit_bits / 32;
  totals.received_words += received_flits * spec_.flit_bits / 32;
  totals.wait += counters.wait_cycles;
  return true;
}

SubnetAgent::Totals SubnetAgent::since_reset(const Target& target, unsigned port,
                                             const Totals& totals) const {
  const auto found = reset_.find({lid_of(target), port});
  if (found == reset_.end()) return totals;
  const Totals& then = found->second;
  return {totals.sent_words - then.sent_words, totals.received_words - then.received_words,
          totals.sent - then.sent, totals.received - then.received, totals.wait - then.wait};
}

// The bits that select what is reset are those of the four counters that both attributes have.
void SubnetAgent::reset(const Target& target, unsigned port, const Totals& totals, bool extended,
                        std::uint16_t select) {
  Totals& then = reset_[{lid_of(target), port}];
  const unsigned bits = extended ? select : select >> 12;
  if ((bits & 1) != 0) then.sent_words = totals.sent_words;
  if ((bits & 2) != 0) then.received_words = totals.received_words;
  if ((bits & 4) != 0) then.sent = totals.sent;
  if ((bits & 8) != 0) then.received = totals.received;
  if (!extended) then.wait = totals.wait;
}

bool SubnetAgent::performance(const Target& target, const emu::Mad& asked, Fields data) {
  const auto attribute = static_cast<std::uint16_t>(get(asked, emu::kMadAttributeAt, 2));
  const bool sets = asked[emu::kMadMethodAt] == emu::kMadSet;
  if (attribute == kClassPortInfo && !sets) {
    data.put8(0, 1);
    data.put8(1, 1);
    data.put16(2, 0x0300);  // AllPortSelect, extended counters
    data.put8(7, 18);       // RespTimeValue
    return true;
  }
  const bool extended = attribute == kPortCountersExtended;
  if (attribute != kPortCounters && !extended) return false;
  const unsigned select = asked[kDataAt + 1];
  const unsigned first = select == kAllPorts ? 1 : select;
  const unsigned last = select == kAllPorts ? ports_of(target) : select;
  Totals sum;
  for (unsigned port = first; port <= last; ++port) {
    Totals totals;
    if (!counters_of(target, port, totals)) return false;
    if (sets)
      reset(target, port, totals, extended, static_cast<std::uint16_t>(get(asked, kDataAt + 2, 2)));
    const Totals shown = since_reset(target, port, totals);
    sum.sent_words += shown.sent_words;
    sum.received_words += shown.received_words;
    sum.sent += shown.sent;
    sum.received += shown.received;
    sum.wait += shown.wait;
  }
  data.put8(1, select);
  if (extended) {
    data.put64(8, sum.sent_words);
    data.put64(16, sum.received_words);
    data.put64(24, sum.sent);
    data.put64(32, sum.received);
    data.put64(40, sum.sent);  // all go to one node each
    data.put64(48, sum.received);
    return true;
  }
  data.put32(24, saturated(sum.sent_words));
  data.put32(28, saturated(sum.received_words));
  data.put32(32, saturated(sum.sent));
  data.put32(36, saturated(sum.received));
  data.put32(40, saturated(sum.wait));
  return true;
}

}  // namespace fabric
