// Management datagrams at the edge: they come back to who sent them, whole or not at all.
#include "emu/packet/build.h"
#include "emu/packet/mad.h"
#include "emu/packet/parse.h"
#include "fabric/daemon/subnet_spec.h"
#include "fabric/subnet/agent.h"
#include "tests/unit/fabric/daemon/edge_world.h"

namespace fabric {
namespace {

class EdgeSubnetTest : public EdgeTest {
 protected:
  void make_agent(bool pass_through) {
    make(pass_through);
    agent_.emplace(
        subnet_spec(config_, network_spec(config_, 1000)), *network_,
        [this](emu::NodeId node) { return edge_->is_attached(node); }, [](LinkEnd) { return 0; },
        [this](emu::NodeId node) { return edge_->multicasts(node); });
    edge_->answer_by(&*agent_);
  }
  // A question of NodeInfo, or of whatever class and attribute.
  static emu::Mad question(std::uint8_t mad_class, std::uint8_t attribute) {
    emu::Mad mad{};
    mad[0] = 1;
    mad[emu::kMadClassAt] = mad_class;
    mad[emu::kMadClassVersionAt] = mad_class == emu::kClassSubnetAdmin ? 2 : 1;
    mad[emu::kMadMethodAt] = mad_class == emu::kClassSubnetAdmin ? emu::kMadGetTable : emu::kMadGet;
    mad[emu::kMadAttributeAt + 1] = attribute;
    return mad;
  }
  PacketHandle datagram(emu::NodeId source, emu::Lid dlid, const emu::Mad& mad,
                        emu::Opcode opcode = emu::Opcode::ud_send_only) {
    const PacketHandle handle = packet(source, source, 1);
    PacketMeta& meta = memory_.meta(handle);
    meta.kind = emu::PacketKind::subnet;
    meta.vl_in = meta.vl_out = emu::kControlVl;
    meta.traffic_class = emu::TrafficClass::control;
    emu::PacketHeaders headers;
    headers.lrh = {emu::kControlVl, 0, dlid, emu::lid_of(source)};
    headers.bth.opcode = opcode;
    headers.bth.dest_qp = mad[emu::kMadClassAt] == emu::kClassSubnetLid ? 0 : 1;
    headers.bth.psn = 77;
    headers.deth.src_qp = headers.bth.dest_qp;
    const std::span slot(reinterpret_cast<std::byte*>(memory_.bytes(handle)), emu::kPacketBytesMax);
    const std::size_t at = emu::write_headers(slot, headers, mad.size());
    std::memcpy(&slot[at], mad.data(), mad.size());
    meta.length = static_cast<std::uint16_t>(emu::seal_packet(slot, at + mad.size()));
    meta.flits = emu::flits_of(meta.length, 128);
    return handle;
  }
  // What the last delivery carries; its form is checked.
  std::vector<std::uint8_t> last_payload(emu::NodeId source, emu::Lid from) {
    const auto& delivery = port_.deliveries.back();
    EXPECT_EQ(delivery.node, source);
    EXPECT_EQ(delivery.desc.src, source);
    EXPECT_EQ(delivery.desc.traffic_class, emu::TrafficClass::control);
    EXPECT_EQ(delivery.desc.arrival_cycle, network_->now());
    EXPECT_EQ(delivery.desc.flits, emu::flits_of(delivery.desc.length, 128));
    const auto* bytes = reinterpret_cast<const std::byte*>(memory_.bytes(delivery.packet));
    const std::span packet(bytes, delivery.desc.length);
    emu::ParsedPacket parsed;
    EXPECT_EQ(emu::parse_packet(packet, parsed), emu::ParseStatus::ok);
    EXPECT_EQ(emu::check_crcs(packet), emu::CrcStatus::ok);
    EXPECT_EQ(parsed.headers.lrh.slid, from);
    EXPECT_EQ(parsed.headers.lrh.dlid, emu::lid_of(source));
    std::vector<std::uint8_t> payload(parsed.payload_bytes);
    std::memcpy(payload.data(), &packet[parsed.payload_offset], payload.size());
    return payload;
  }

  std::optional<SubnetAgent> agent_;
};

TEST_F(EdgeSubnetTest, ADatagramComesBackAnsweredAtOnce) {
  for (const bool pass_through : {false, true}) {
    make_agent(pass_through);
    const std::size_t before = port_.deliveries.size();
    const PacketHandle handle = datagram(2, 4, question(emu::kClassSubnetLid, 0x11));
    send(handle);
    ASSERT_EQ(port_.deliveries.size(), before + 1);
    EXPECT_EQ(port_.deliveries.back().packet, handle) << "in its own buffer";
    const auto payload = last_payload(2, 4);
    EXPECT_EQ(payload.size(), emu::kMadBytes);
    EXPECT_EQ(payload[emu::kMadMethodAt], emu::kMadGetResponse);
    EXPECT_EQ(payload[64 + 2], 1) << "a channel adapter";
    EXPECT_EQ(edge_->in_flight(), 0U);
    memory_.release(handle);
  }
}

TEST_F(EdgeSubnetTest, WhatNobodyAnswersComesBackAsItWas) {
  make_agent(false);
  edge_->lost(3);
  const emu::Mad mad = question(emu::kClassSubnetLid, 0x11);
  for (const emu::Lid lid : {emu::Lid{4}, emu::Lid{40}}) {
    send(datagram(2, lid, mad));
    const auto payload = last_payload(2, lid);
    EXPECT_TRUE(std::equal(mad.begin(), mad.end(), payload.begin(), payload.end()));
  }
}

// Who asks without end waits for its own answers; others have theirs in the next turn.
TEST_F(EdgeSubnetTest, ATurnAnswersAFewAndNodesTakeTurns) {
  make_agent(false);
  constexpr std::size_t kFew = Edge::kAnswersPerTurn;
  for (std::size_t i = 0; i < 10 * kFew; ++i)
    inbox_.packets.push_back(datagram(1, 1, question(emu::kClassSubnetAdmin, 0x11)));
  edge_->submit(inbox_);
  EXPECT_EQ(port_.deliveries.size(), kFew);
  EXPECT_TRUE(edge_->has_questions());
  send(datagram(2, 4, question(emu::kClassSubnetLid, 0x11)));
  EXPECT_EQ(port_.deliveries.size(), 2 * kFew);
  EXPECT_EQ(std::ranges::count(port_.deliveries, 2, &FakePort::Delivery::node), 1);
  // What is left goes with its session.
  edge_->lost(1);
  edge_->attached(1, port_);
  const std::size_t before = port_.deliveries.size();
  for (int turn = 0; edge_->has_questions(); ++turn) {
    ASSERT_LT(turn, 10);
    edge_->submit(inbox_);
  }
  EXPECT_EQ(port_.deliveries.size(), before);
  EXPECT_EQ(memory_.free_count(pool_), 256U - before) << "of those that nobody takes";
  send(datagram(1, 4, question(emu::kClassSubnetLid, 0x11)));
  EXPECT_EQ(port_.deliveries.size(), before + 1);
}

TEST_F(EdgeSubnetTest, ATableIsOnePacket) {
  make_agent(false);
  send(datagram(0, 1, question(emu::kClassSubnetAdmin, 0x11)));
  EXPECT_EQ(last_payload(0, 1).size(), 56U + 5 * 112) << "four nodes and a switch";
}

TEST_F(EdgeSubnetTest, WhatIsNoDatagramIsDropped) {
  make_agent(false);
  const emu::Mad mad = question(emu::kClassSubnetLid, 0x11);
  send(datagram(1, 2, mad, emu::Opcode::rc_send_only));
  PacketHandle handle = datagram(1, 2, mad);
  memory_.meta(handle).length = 200;
  send(handle);
  handle = datagram(1, 2, mad);
  memory_.meta(handle).length = 294;
  send(handle);
  handle = datagram(1, 2, mad);
  std::memset(memory_.bytes(handle), 0xff, 290);
  send(handle);
  handle = datagram(1, 2, mad);
  edge_->lost(1);
  send(handle);
  EXPECT_EQ(port_.deliveries.size(), 0U);
  EXPECT_EQ(edge_->malformed(), 5U);
  EXPECT_EQ(memory_.free_count(pool_), 256U);
}

TEST_F(EdgeSubnetTest, PortsTakeOnlyDatagramsOfTheControlClass) {
  const EdgeRules rules = edge_rules(config_);
  emu::TxDesc desc{};
  desc.length = emu::kMadPacketBytes;
  desc.flits = 19;
  desc.dest = 1;
  desc.vl_in = desc.vl_out = emu::kControlVl;
  desc.traffic_class = emu::TrafficClass::control;
  desc.kind = emu::PacketKind::subnet;
  EXPECT_EQ(descriptor_fault(desc, rules, 0), nullptr);
  desc.length = emu::kMadPacketBytes - 1;
  EXPECT_STREQ(descriptor_fault(desc, rules, 0), "length of a datagram");
  desc.length = emu::kMadPacketBytes;
  desc.traffic_class = emu::TrafficClass::best_effort;
  desc.vl_in = desc.vl_out = 0;
  EXPECT_STREQ(descriptor_fault(desc, rules, 0), "traffic_class of control");
}

}  // namespace
}  // namespace fabric
