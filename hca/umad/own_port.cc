#include "hca/umad/own_port.h"

#include <algorithm>
#include <cstddef>

namespace hca {

namespace {

// Of SMPs by directed route (IBA 14.2.1.2).
constexpr std::size_t kHopCountAt = 7;
constexpr std::size_t kDirectedSlidAt = 32;
constexpr std::size_t kDirectedDlidAt = 34;
constexpr std::size_t kDataAt = 64;
constexpr std::uint8_t kReturning = 0x80;  // the direction bit, first of the status

unsigned word_at(const emu::Mad& mad, std::size_t at) { return mad[at] * 256U + mad[at + 1]; }
void put_word(emu::SmpData data, std::size_t at, unsigned value) {
  data[at] = static_cast<std::uint8_t>(value >> 8);
  data[at + 1] = static_cast<std::uint8_t>(value);
}

bool is_for_sender(const emu::Mad& mad) {
  return mad[0] == 1 && mad[emu::kMadClassAt] == emu::kClassSubnetDirected &&
         mad[emu::kMadClassVersionAt] == 1 && mad[emu::kMadMethodAt] == emu::kMadGet &&
         mad[kHopCountAt] == 0 && word_at(mad, kDirectedSlidAt) == emu::kPermissiveLid &&
         word_at(mad, kDirectedDlidAt) == emu::kPermissiveLid;
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
      for (std::size_t i = 0; i < 8; ++i)
        data[i] = static_cast<std::uint8_t>(own.device.guid >> (56 - 8 * i));
      return true;
    case emu::kPkeyTable:
      if (block != 0) return false;
      put_word(data, 0, emu::kDefaultPkey);
      return true;
    default:
      return false;
  }
}

}  // namespace

std::optional<emu::Mad> answer_of(const OwnPort& own, const emu::Mad& asked) {
  if (!is_for_sender(asked)) return {};
  emu::Mad answer = asked;
  const emu::SmpData data(&answer[kDataAt], emu::SmpData::extent);
  std::ranges::fill(data, std::uint8_t{0});
  if (!put_attribute(own, asked, data)) return {};
  answer[emu::kMadMethodAt] = emu::kMadGetResponse;
  answer[emu::kMadStatusAt] = kReturning;
  answer[emu::kMadStatusAt + 1] = 0;
  return answer;
}

}  // namespace hca
