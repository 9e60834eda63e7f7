#include "fabric/port/port.h"

#include "emu/packet/mad.h"
#include "emu/packet/parse.h"

namespace fabric {

const char* descriptor_fault(const emu::TxDesc& desc, const EdgeRules& rules, emu::Cycle now) {
  const bool train = desc.more_packets != 0;
  if (train && (!rules.trains || desc.more_packets >= emu::kTrainPacketsMax)) return "more_packets";
  const std::size_t bytes = emu::buffer_bytes(desc);
  const std::size_t head = train ? emu::kTrainHeadBytes : 0;
  if (bytes <= head || bytes > emu::slots_of(desc) * emu::kPacketBytesMax) return "length";
  if (desc.flits == 0 || desc.flits > rules.flits_max * (desc.more_packets + 1)) return "flits";
  if (std::size_t{desc.flits} * rules.flit_bytes < bytes - head) {
    return "flits fewer than bytes";
  }
  if (desc.dest >= rules.node_count) return "dest";
  const auto traffic_class = static_cast<std::size_t>(desc.traffic_class);
  if (traffic_class >= emu::kClassCount) return "traffic_class";
  const unsigned lanes = rules.lanes_of_class[traffic_class];
  if (desc.vl_in >= emu::kVlCount || (lanes >> desc.vl_in & 1U) == 0) return "vl_in";
  if (desc.vl_out >= emu::kVlCount || (lanes >> desc.vl_out & 1U) == 0) return "vl_out";
  if (static_cast<int>(desc.kind) >= emu::kPacketKindCount) return "kind";
  if (desc.kind != emu::PacketKind::data) {
    if (train) return "more_packets";
    if (desc.traffic_class != emu::TrafficClass::control) return "traffic_class of control";
    if (desc.kind == emu::PacketKind::subnet) {
      if (desc.length < emu::kMadPacketBytes) return "length of a datagram";
    } else if (desc.length < sizeof(emu::ProbeBody)) {
      return "length of a probe";
    }
  }
  if (desc.launch_cycle > now && desc.launch_cycle - now > rules.horizon_cycles) {
    return "launch_cycle beyond the horizon";
  }
  return nullptr;
}

}  // namespace fabric
