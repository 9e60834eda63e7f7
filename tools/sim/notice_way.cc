#include "tools/sim/notice_way.h"

#include <bit>

namespace tools {

namespace {

// The lane that stands for control: VL15 if it is one, else the lowest.
emu::Vl lane_of(emu::LaneMask lanes) {
  if (((lanes >> emu::kControlVl) & 1) != 0) return emu::kControlVl;
  return static_cast<emu::Vl>(std::countr_zero(lanes));
}

}  // namespace

emu::Result<NoticeWay> NoticeWay::make(const emu::Config& config,
                                       const std::array<emu::LaneMask, emu::kClassCount>& lanes,
                                       const fabric::Notices& notices) {
  NoticeWay way;
  way.flits_ = static_cast<std::uint16_t>(config.network.control_packet_size);
  way.by_message_ = config.controls.notice == emu::NoticeWay::message;
  if (!way.by_message_) return way;
  const emu::LaneMask control = lanes[static_cast<std::size_t>(emu::TrafficClass::control)];
  if (control == 0) return emu::fail("controls.notice: control has no lane for messages");
  way.lane_ = lane_of(control);
  if (!notices.all_have_senders())
    return emu::fail("controls.notice: a router has no node that could send its messages");
  return way;
}

std::optional<FlitMessage> NoticeWay::carrier(const fabric::Notices& notices,
                                              const emu::Notice& notice, emu::Cycle now) const {
  const emu::NodeId sender = notices.sender_of(notice);
  // An HCA hears of itself without the network.
  if (!by_message_ || sender == notice.source) return {};
  FlitMessage message;
  message.created = message.accepted = message.launch = now;
  message.stream = kNoStream;
  message.flits = flits_;
  message.source = sender;
  message.dest = notice.source;
  message.vl_in = message.vl_out = lane_;
  message.traffic_class = emu::TrafficClass::control;
  message.notice = notice;
  return message;
}

}  // namespace tools
