#include "hca/umad/own_port.h"

#include <algorithm>
#include <cstddef>

namespace hca {

namespace {

unsigned word_at(const emu::Mad& mad, std::size_t at) {
  return static_cast<unsigned>(emu::get_field<2>(&mad[at]));
}

bool is_for_sender(const emu::Mad& mad) {
  return mad[0] == 1 && mad[emu::kMadClassAt] == emu::kClassSubnetDirected &&
         mad[emu::kMadClassVersionAt] == 1 && mad[emu::kMadMethodAt] == emu::kMadGet &&
         mad[emu::kHopCountAt] == 0 && word_at(mad, emu::kDirectedSlidAt) == emu::kPermissiveLid &&
         word_at(mad, emu::kDirectedDlidAt) == emu::kPermissiveLid;
}

// There is one port, and one block of each table.
bool put_attribute(const OwnPort& own, const emu::Mad& asked, emu::SmpData data) {
  constexpr unsigned kPortMask = 0x7fff;  // before it: who asks knows extended speeds
  const unsigned block = word_at(asked, emu::kMadModifierAt + 2);
  switch (word_at(asked, emu::kMadAttributeAt)) {
    case emu::kNodeDescription:
      emu::put_description(own.description, data);
      return true;
    case emu::kNodeInfo:
      emu::put_node_info(own.device, 1, data);
      return true;
    case emu::kPortInfo:
      if ((word_at(asked, emu::kMadModifierAt) & kPortMask) != 0 || block > 1) return false;
      emu::put_port(1, data);
      emu::put_address(own.lid, own.link.link_bps, data);
      emu::put_link(own.link, false, data);
      return true;
    case emu::kGuidInfo:
      if (block != 0) return false;
      emu::put_field<8>(data.data(), own.device.guid);
      return true;
    case emu::kPkeyTable:
      if (block != 0) return false;
      emu::put_field<2>(data.data(), emu::kDefaultPkey);
      return true;
    default:
      return false;
  }
}

}  // namespace

std::optional<emu::Mad> answer_of(const OwnPort& own, const emu::Mad& asked) {
  if (!is_for_sender(asked)) return {};
  emu::Mad answer = asked;
  const emu::SmpData data(&answer[emu::kMadDataAt], emu::SmpData::extent);
  std::ranges::fill(data, std::uint8_t{0});
  if (!put_attribute(own, asked, data)) return {};
  answer[emu::kMadMethodAt] = emu::kMadGetResponse;
  emu::put_field<2>(&answer[emu::kMadStatusAt], emu::kMadReturning);
  return answer;
}

}  // namespace hca
