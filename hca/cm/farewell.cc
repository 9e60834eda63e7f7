// Last words of ids that are gone (DREQ): said again until the peer answers or starts anew, as
// often as any other. In: ids that end in a connection; DREPs; time.
#include <iterator>

#include "hca/cm/state.h"

namespace hca {

namespace {

// A program that ends leaves one for each of its connections, all to be said again at once. What
// finds no room in the host's queue would not be said at all.
constexpr std::uint32_t kFarewellsATurn = kMadsWaitingMax / 8;

using Farewells = decltype(CmState::farewells);

Farewells::iterator end_one(CmState& s, Farewells::iterator farewell) {
  give_back(s, farewell->second.owner, &Program::farewells);
  s.farewell_times.erase({farewell->second.again_at, farewell->first});
  return s.farewells.erase(farewell);
}

void say(CmState& s, std::uint32_t number, const Farewell& farewell) {
  CmMessage m;
  m.kind = CmKind::dreq;
  m.local_id = wire_id(s, number);
  m.remote_id = farewell.remote_id;
  m.qpn = farewell.remote_qpn;
  send_once(s, farewell.peer, m);
}

}  // namespace

// A program that leaves more of them than its share has them said once only.
void add_farewell(CmState& s, const Id& id, std::uint8_t attempts, emu::EmuNs again_at) {
  if (s.farewells.size() >= s.options.ids_max) return;
  if (!take_share(s, id.owner, &Program::farewells)) return;
  s.farewells[id.number] = {id.owner, id.peer, id.remote_id, id.remote_qpn, attempts, again_at};
  s.farewell_times.emplace(again_at, id.number);
}

void on_farewell_drep(CmState& s, emu::NodeId source, const CmMessage& m) {
  const auto found = s.farewells.find(number_of(s, m.remote_id));
  if (found == s.farewells.end()) return;
  const Farewell& farewell = found->second;
  if (farewell.peer == source && farewell.remote_id == m.local_id) end_one(s, found);
}

void end_farewells(CmState& s, emu::NodeId peer) {
  for (auto it = s.farewells.begin(); it != s.farewells.end();)
    it = it->second.peer == peer ? end_one(s, it) : std::next(it);
}

void repeat_farewells(CmState& s) {
  std::uint32_t said = 0;
  while (!s.farewell_times.empty() && said < kFarewellsATurn) {
    const auto [at, number] = *s.farewell_times.begin();
    if (at > s.now_ns) return;
    const auto found = s.farewells.find(number);
    Farewell& farewell = found->second;
    if (farewell.attempts_left == 0) {
      end_one(s, found);
      continue;
    }
    ++said;
    --farewell.attempts_left;
    s.farewell_times.erase(s.farewell_times.begin());
    farewell.again_at = s.now_ns + kAnswerNs;
    s.farewell_times.emplace(farewell.again_at, number);
    say(s, number, farewell);
  }
}

}  // namespace hca
