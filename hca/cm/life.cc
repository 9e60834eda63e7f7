// Lives of other nodes' hcads: one that starts anew counts its ids from the beginning and knows
// nothing of its connections. In: the life that a message names. Out: whether it is to be heard;
// connections with a life that is over end (IBA 12.9.8.3: stale connections).
#include <algorithm>
#include <utility>

#include "hca/cm/state.h"

namespace hca {

namespace {

// The other end has gone without a word: what would its DREQ have been?
void end_stale(CmState& s, Id& id) {
  if (is_datagram(id) && id.state == IdState::established) return;  // that is no connection
  switch (id.state) {
    case IdState::rep_sent:
    case IdState::rep_received:
    case IdState::established:
    case IdState::dreq_sent:
      push_simple(s, id, CmEvent::disconnected);
      rest(s, id);
      break;
    case IdState::req_received:
      answered(s, id);
      id.state = IdState::ended;
      break;
    case IdState::req_sent:  // the former life may have bidden it wait
      id.attempts_left = std::max<std::uint8_t>(id.attempts_left, 1);
      wait_until(s, id, s.now_ns);
      break;
    default:  // what waits for a first answer is asked again, and the new life may give it
      break;
  }
}

void end_life(CmState& s, emu::NodeId source) {
  for (auto& [number, id] : s.ids) {
    if (id.has_peer && id.peer == source) end_stale(s, id);
  }
  std::erase_if(s.requests, [&](const auto& request) { return request.first.first == source; });
  std::erase_if(s.parked, [&](const ParkedRequest& p) { return p.source == source; });
  end_farewells(s, source);
}

}  // namespace

bool is_heard(CmState& s, emu::NodeId source, std::uint32_t life) {
  const auto [known, first] = s.peers.try_emplace(source);
  Peer& peer = known->second;
  if (first) {
    peer.life = life;
    peer.former.fill(life);
  }
  if (peer.life == life) return true;
  // Said before its sender started anew, and late: whoever would hear an answer is gone.
  if (std::ranges::find(peer.former, life) != peer.former.end()) return false;
  std::ranges::rotate(peer.former, peer.former.end() - 1);
  peer.former.front() = std::exchange(peer.life, life);
  end_life(s, source);
  return true;
}

}  // namespace hca
