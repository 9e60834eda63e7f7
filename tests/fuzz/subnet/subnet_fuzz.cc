// Whatever a node may send to the subnet's agents. The input is a list of questions, each with who
// asks, the LID and the QP, while nodes and links come and go. Besides what the sanitizers see: an
// answer is one to its question and not longer than a packet, a question that nobody answers is
// unchanged, and a packet comes back sealed.
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <memory>

#include "emu/base/check.h"
#include "emu/packet/mad.h"
#include "emu/packet/parse.h"
#include "emu/wire/message.h"
#include "fabric/subnet/packet.h"

namespace {

using fabric::MadPayload;

constexpr int kNodes = 16;  // of a fat tree: the routing knows ways round links that are down

// One for all inputs: making it costs more than asking it.
struct World {
  World() {
    fabric::NetworkSpec spec;
    spec.topology = fabric::TopologyKind::ary_tree;
    spec.arity = 4;
    spec.levels = 2;
    spec.lane_vtick = fabric::default_lane_vticks(spec.lanes_of_class);
    network = std::move(*fabric::Network::make(spec));
    CHECK(network->nodes() == kNodes);
    agent = std::make_unique<fabric::SubnetAgent>(
        fabric::SubnetSpec{}, *network,
        [this](emu::NodeId node) { return (away >> node & 1) == 0; },
        [](fabric::LinkEnd) { return 1; },
        [](emu::NodeId) { return fabric::PerformanceManagement::Multicasts{}; });
  }
  std::unique_ptr<fabric::Network> network;
  std::uint32_t away = 0;
  std::unique_ptr<fabric::SubnetAgent> agent;
};

struct Question {
  std::uint16_t away;
  std::uint16_t down;  // an end of a link; often none
  std::uint16_t dlid;
  std::uint8_t source;
  std::uint8_t qp;
};

void ask(World& world, const Question& question, const MadPayload& asked) {
  MadPayload mad = asked;
  const auto source = static_cast<emu::NodeId>(question.source % kNodes);
  const auto dlid =
      static_cast<emu::Lid>((question.dlid & 0x8000) != 0 ? question.dlid : question.dlid % 32);
  const auto answered = world.agent->answer(mad, source, dlid, question.qp % 3);
  if (answered.bytes == 0) {
    CHECK(mad == asked);
    return;
  }
  CHECK(answered.bytes >= emu::kMadBytes && answered.bytes <= mad.size());
  CHECK((mad[emu::kMadMethodAt] & emu::kMadResponseBit) != 0);
  CHECK(std::equal(&mad[8], &mad[24], &asked[8]));
}

// The question as the bytes of a packet, whatever they are.
void send(World& world, emu::NodeId source, const MadPayload& bytes, std::size_t length) {
  std::array<std::byte, emu::kPacketBytesMax> slot{};
  std::memcpy(slot.data(), bytes.data(), length);
  const std::array<std::byte, emu::kPacketBytesMax> before = slot;
  const std::size_t size = fabric::answer_packet(*world.agent, slot, length, source);
  if (size == 0) {
    CHECK(slot == before);
    return;
  }
  CHECK(size <= slot.size());
  CHECK(emu::check_crcs(std::span(slot).first(size)) == emu::CrcStatus::ok);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static World world;
  // The last question ends where the input ends, with zeros behind it.
  struct Step {
    Question question;
    emu::Mad mad;
  };
  while (size != 0) {
    Step step{};
    const std::size_t bytes = std::min(size, sizeof step);
    std::memcpy(&step, data, bytes);
    data += bytes;
    size -= bytes;
    const Question& question = step.question;
    MadPayload mad{};
    std::copy(step.mad.begin(), step.mad.end(), mad.begin());
    mad[0] = 1;
    world.away = question.away;
    const fabric::LinkEnd link = {static_cast<emu::RouterId>(question.down % 8),
                                  static_cast<emu::PortId>(question.down >> 4 & 7)};
    const bool down = (question.down & 0x8000) != 0;
    (void)world.network->set_down(down ? std::span(&link, 1) : std::span<const fabric::LinkEnd>());
    ask(world, question, mad);
    send(world, static_cast<emu::NodeId>(question.source % kNodes), mad, emu::kMadBytes);
    std::array<std::uint8_t, 8> lrh = {0xf0, 2, 0, 1, 0, 72, 0, 1};
    MadPayload packet{};
    std::copy(lrh.begin(), lrh.end(), packet.begin());
    packet[8] = 0x64;  // UD, send only
    packet[16 - 1] = question.qp % 2;
    std::copy_n(mad.begin(), emu::kMadBytes, &packet[28]);
    send(world, static_cast<emu::NodeId>(question.source % kNodes), packet, emu::kMadPacketBytes);
  }
  return 0;
}
