#include "emu/packet/device_info.h"

#include <algorithm>
#include <cstring>

#include "emu/base/guid.h"
#include "emu/base/link_speed.h"
#include "emu/packet/mad.h"

namespace emu {

namespace {

constexpr unsigned kPortDown = 1;
constexpr unsigned kPortActive = 4;
constexpr unsigned kPolling = 2;
constexpr unsigned kLinkUp = 5;
constexpr unsigned kVl0To14 = 5;
constexpr std::uint8_t kVlArbitrationEntries = 64;  // of high and of low priority

}  // namespace

void put_description(std::string_view name, SmpData data) {
  std::memcpy(data.data(), name.data(), std::min(name.size(), data.size() - 1));
}

void put_node_info(const DeviceInfo& device, int port, SmpData data) {
  data[0] = 1;  // base version
  data[1] = 1;  // class version
  data[2] = device.is_switch ? 2 : 1;
  data[3] = static_cast<std::uint8_t>(device.ports);
  for (const std::size_t guid_at : {4, 12, 20}) put_field<8>(&data[guid_at], device.guid);
  put_field<2>(&data[28], 1);  // partition keys
  put_field<2>(&data[30], device.device_id);
  put_field<4>(&data[32], kHardwareVersion);
  data[36] = static_cast<std::uint8_t>(port);
  put_field<3>(&data[37], device.vendor_id);
}

void put_port(int asked_by, SmpData data) {
  data[28] = static_cast<std::uint8_t>(asked_by);
  data[52] = kResponseTime;
}

void put_address(Lid lid, std::uint64_t link_bps, SmpData data) {
  put_field<8>(&data[8], kGidPrefix);
  put_field<2>(&data[16], lid);
  put_field<2>(&data[18], kManagerLid);
  put_field<4>(&data[20], port_capabilities(link_bps, lid == kManagerLid));
  data[50] = 1;  // GUIDs
  data[51] = kSubnetTimeout;
}

void put_link(const LinkInfo& link, bool is_up, SmpData data) {
  const LinkSpeed& speed = link_speed_of(link.link_bps);
  const unsigned width = speed.width == 1 ? 1 : 3;             // supported: 1x, or 1x and 4x
  const unsigned speeds = (unsigned{speed.plain()} << 1) - 1;  // that one and all slower ones
  const unsigned faster = speed.extended() == 0 ? 0 : (unsigned{speed.extended()} << 1) - 1;
  data[29] = data[30] = static_cast<std::uint8_t>(width);
  data[31] = speed.width;
  data[32] = nibbles(speeds, is_up ? kPortActive : kPortDown);
  data[33] = nibbles(is_up ? kLinkUp : kPolling, kPolling);
  data[35] = nibbles(speed.plain(), speeds);
  data[36] = nibbles(mtu_code(link.mtu_bytes), 0);
  data[37] = nibbles(kVl0To14, 0);
  data[38] = link.high_limit;
  data[39] = data[40] = kVlArbitrationEntries;
  data[41] = nibbles(0, mtu_code(4096));
  data[43] = nibbles(kVl0To14, 0);
  data[53] = nibbles(8, 8);  // errors until a link counts as bad: the IBA's default
  data[62] = nibbles(speed.extended(), faster);
  data[63] = static_cast<std::uint8_t>(faster);
}

}  // namespace emu
