#include "fabric/subnet/performance.h"

#include <algorithm>
#include <utility>

#include "emu/packet/mad.h"

namespace fabric {

namespace {

constexpr std::uint16_t kPerformanceClassPortInfo = 0x01;
constexpr std::uint16_t kPortCounters = 0x12;
constexpr std::uint16_t kPortCountersExtended = 0x1d;
constexpr std::uint8_t kAllPorts = 0xff;

// All ports at once; wide counters; PortCounters have the time that flits waited.
constexpr std::uint16_t kCapabilities = 0x0100 | 0x0200 | 0x1000;

void put_narrow(std::uint8_t* at, std::uint64_t value) {
  put_field<4>(at, std::min<std::uint64_t>(value, 0xffffffff));  // it stops there (IBA 16.1.3.5)
}

}  // namespace

PerformanceManagement::PerformanceManagement(const SubnetMap& map, std::uint32_t flit_bits,
                                             LinkDowns link_downs, MulticastsOf multicasts)
    : map_(map),
      flit_bits_(flit_bits),
      link_downs_(std::move(link_downs)),
      multicasts_(std::move(multicasts)),
      of_node_(static_cast<std::size_t>(map.nodes())) {
  for (int r = 0; r < map.routers(); ++r) {
    const int ports = map.ports(switch_device(static_cast<emu::RouterId>(r)));
    of_switch_.emplace_back(static_cast<std::size_t>(ports));
  }
}

MadStatus PerformanceManagement::answer(std::uint8_t method, std::uint16_t attribute, Device device,
                                        Data data) {
  const bool sets = method == emu::kMadSet;
  switch (attribute) {
    case kPerformanceClassPortInfo:
      if (sets) return MadStatus::unsupported;
      std::ranges::fill(data, std::uint8_t{0});
      data[0] = data[1] = 1;  // versions
      put_field<2>(&data[2], kCapabilities);
      put_field<4>(&data[4], kResponseTime);
      return MadStatus::ok;
    case kPortCounters:
      return narrow(sets, device, data);
    case kPortCountersExtended:
      return wide(sets, device, data);
    default:
      return MadStatus::unsupported;
  }
}

MadStatus PerformanceManagement::narrow(bool sets, Device device, Data data) {
  const std::uint8_t port_select = data[1];
  const auto select = static_cast<std::uint16_t>(get_field<2>(&data[2]));
  const std::uint8_t select_more = data[18];
  if (!has(device, port_select)) return MadStatus::invalid_field;
  // Bits 12 to 15 are the four of data, bit 2 is LinkDowned; the errors never happen.
  if (sets) {
    const unsigned counters =
        select >> 12 | (select_more & 1U) << wait | (select >> 2 & 1U) << downs;
    reset(device, port_select, &Resets::narrow, counters);
  }
  std::ranges::fill(data, std::uint8_t{0});
  data[1] = port_select;
  put_field<2>(&data[2], select);
  data[18] = select_more;
  const Counts counts = sum(device, port_select, &Resets::narrow);
  data[7] = static_cast<std::uint8_t>(std::min<std::uint64_t>(counts[downs], 0xff));
  for (std::size_t i = 0; i <= wait; ++i) put_narrow(&data[24 + 4 * i], counts[i]);
  return MadStatus::ok;
}

MadStatus PerformanceManagement::wide(bool sets, Device device, Data data) {
  const std::uint8_t port_select = data[1];
  const auto select = static_cast<std::uint16_t>(get_field<2>(&data[2]));
  if (!has(device, port_select)) return MadStatus::invalid_field;
  if (sets) {
    const unsigned counters = (select & 0xfU) | (select >> 4 & 0xfU) << unicast_sent;
    reset(device, port_select, &Resets::wide, counters);
  }
  std::ranges::fill(data, std::uint8_t{0});
  data[1] = port_select;
  put_field<2>(&data[2], select);
  const Counts counts = sum(device, port_select, &Resets::wide);
  for (std::size_t i = 0; i < wait; ++i) put_field<8>(&data[8 + 8 * i], counts[i]);
  for (std::size_t i = unicast_sent; i < kCounters; ++i)
    put_field<8>(&data[40 + 8 * (i - unicast_sent)], counts[i]);
  return MadStatus::ok;
}

bool PerformanceManagement::has(Device device, std::uint8_t port_select) const {
  return port_select == kAllPorts || (port_select >= 1 && port_select <= map_.ports(device));
}

PerformanceManagement::Counts PerformanceManagement::counts(Device device, int port) const {
  const Network& network = map_.network();
  const PortCounters of_port =
      device.is_switch ? network.router_counters(device.index, static_cast<emu::PortId>(port - 1))
                       : network.wire_counters(device.index);
  const LinkEnd end = device.is_switch
                          ? LinkEnd{device.index, static_cast<emu::PortId>(port - 1)}
                          : LinkEnd{network.router_of(device.index), network.port_of(device.index)};
  Counts counts{};
  for (std::size_t vl = 0; vl < emu::kVlCount; ++vl) {
    counts[sent_words] += of_port.sent[vl].flits;
    counts[received_words] += of_port.received[vl].flits;
    counts[sent] += of_port.sent[vl].packets;
    counts[received] += of_port.received[vl].packets;
  }
  for (const Counter words : {sent_words, received_words})
    counts[words] = counts[words] * flit_bits_ / 32;
  counts[wait] = of_port.wait_cycles;
  counts[downs] = link_downs_(end);
  // A copy may be at the far end of a link before it is counted there.
  const Multicasts groups = multicasts(device, port);
  counts[multicast_sent] = groups.sent;
  counts[multicast_received] = groups.received;
  counts[unicast_sent] = counts[sent] - std::min(counts[sent], groups.sent);
  counts[unicast_received] = counts[received] - std::min(counts[received], groups.received);
  return counts;
}

// A flit does not say that its packet goes to a group: between routers nobody knows.
PerformanceManagement::Multicasts PerformanceManagement::multicasts(Device device, int port) const {
  if (!device.is_switch) return multicasts_(device.index);
  const emu::NodeId node = map_.network().node_at(device.index, static_cast<emu::PortId>(port - 1));
  if (node == kNoNode) return {};
  const Multicasts of_node = multicasts_(node);
  return {.sent = of_node.received, .received = of_node.sent};
}

PerformanceManagement::Counts PerformanceManagement::sum(Device device, std::uint8_t port_select,
                                                         Counts Resets::*since) const {
  Counts all{};
  for (int port = 1; port <= map_.ports(device); ++port) {
    if (port_select != kAllPorts && port_select != port) continue;
    const Counts now = counts(device, port);
    const Counts& before = resets(device, port).*since;
    for (std::size_t i = 0; i < kCounters; ++i) all[i] += now[i] - std::min(now[i], before[i]);
  }
  return all;
}

void PerformanceManagement::reset(Device device, std::uint8_t port_select, Counts Resets::*since,
                                  unsigned counters) {
  for (int port = 1; port <= map_.ports(device); ++port) {
    if (port_select != kAllPorts && port_select != port) continue;
    const Counts now = counts(device, port);
    for (std::size_t i = 0; i < kCounters; ++i)
      if ((counters >> i & 1) != 0) (resets(device, port).*since)[i] = now[i];
  }
}

const PerformanceManagement::Resets& PerformanceManagement::resets(Device device, int port) const {
  if (!device.is_switch) return of_node_[device.index];
  return of_switch_[device.index][static_cast<std::size_t>(port) - 1];
}
PerformanceManagement::Resets& PerformanceManagement::resets(Device device, int port) {
  if (!device.is_switch) return of_node_[device.index];
  return of_switch_[device.index][static_cast<std::size_t>(port) - 1];
}

}  // namespace fabric
