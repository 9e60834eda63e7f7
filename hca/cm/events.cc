// Events on their way to programs, and the life of ids: what was reported is counted, because a
// program may only free an id after it has acknowledged as many.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "hca/cm/state.h"

namespace hca {

Id* new_id(CmState& s, CmFileId file) {
  const std::uint32_t owner = s.files.at(file).owner;
  if (s.ids.size() >= s.options.ids_max || !take_share(s, owner, &Program::ids)) return nullptr;
  while (s.ids.contains(s.next_number) || s.farewells.contains(s.next_number) ||
         s.next_number == kNobody || s.next_number == 0) {
    ++s.next_number;
  }
  // Small numbers: librdmacm keeps ids in a table indexed by them.
  const std::uint32_t number = s.next_number++;
  if (s.next_number > 4 * s.options.ids_max) s.next_number = 1;
  Id& id = s.ids[number];
  id.number = number;
  id.file = file;
  id.owner = owner;
  s.files.at(file).ids.insert(number);
  id.psn = static_cast<std::uint32_t>(s.prng()) & 0xffffff;
  return &id;
}

Id* find_id(CmState& s, CmFileId file, std::uint32_t number) {
  const auto it = s.ids.find(number);
  return it != s.ids.end() && it->second.file == file ? &it->second : nullptr;
}

void move_id(CmState& s, Id& id, CmFileId file) {
  s.files.at(id.file).ids.erase(id.number);
  s.files.at(file).ids.insert(id.number);
  id.file = file;
}

bool take_share(CmState& s, std::uint32_t owner, std::uint32_t Program::*what) {
  Program& program = s.programs[owner];
  if (program.*what >= s.options.ids_of_program_max) return false;
  ++(program.*what);
  return true;
}

void give_back(CmState& s, std::uint32_t owner, std::uint32_t Program::*what) {
  const auto it = s.programs.find(owner);
  --(it->second.*what);
  if (it->second == Program{}) s.programs.erase(it);
}

void tell_file(CmState& s, CmFileId file) {
  const auto found = s.files.find(file);
  if (found != s.files.end()) s.out.events_wait(file, !found->second.events.empty());
}

void push_event(CmState& s, Id& id, CmEvent event, const rdma_ucm_event_resp& body) {
  const auto file = s.files.find(id.file);
  // A request that was not accepted has no name at the program yet: it cannot be told of it.
  if (file == s.files.end() || id.uid == 0) return;
  WaitingEvent waiting;
  waiting.id = id.number;
  waiting.body = body;
  waiting.body.uid = id.uid;
  waiting.body.id = id.number;
  waiting.body.event = static_cast<std::uint32_t>(event);
  file->second.events.push_back(waiting);
  if (event == CmEvent::addr_error) id.addr_error_waits = true;
  tell_file(s, id.file);
}

void push_simple(CmState& s, Id& id, CmEvent event, int status) {
  rdma_ucm_event_resp body{};
  body.status = static_cast<std::uint32_t>(status);
  push_event(s, id, event, body);
}

CmAnswer take_event(CmState& s, CmFileId number, std::span<std::uint8_t> to) {
  auto& events = s.files[number].events;
  if (events.empty()) return {EAGAIN, 0};
  const WaitingEvent event = events.front();
  events.pop_front();
  if (const auto id = s.ids.find(event.id); id != s.ids.end()) {
    ++id->second.events_reported;
    if (event.request != kNobody && id->second.requests_waiting > 0) --id->second.requests_waiting;
    if (event.body.event == static_cast<std::uint32_t>(CmEvent::addr_error))
      id->second.addr_error_waits = false;
  }
  if (const auto id = s.ids.find(event.request); id != s.ids.end()) id->second.listener = kNobody;
  if (const auto mc = s.multicasts.find(event.multicast); mc != s.multicasts.end()) {
    ++mc->second.events_reported;
  }
  tell_file(s, number);
  return answer_with(event.body, to);
}

namespace {

// Takes back what waits of an id that ends. Returns the requests among it, which nobody will see.
std::vector<std::uint32_t> drop_events(CmState& s, const Id& id) {
  std::vector<std::uint32_t> unseen;
  const auto file = s.files.find(id.file);
  if (file == s.files.end()) return unseen;
  const auto dropped = std::erase_if(file->second.events, [&](const WaitingEvent& e) {
    if (e.id == id.number && e.request != kNobody) unseen.push_back(e.request);
    return e.id == id.number || e.request == id.number;
  });
  if (dropped != 0) tell_file(s, id.file);
  return unseen;
}

}  // namespace

// A program's end destroys all its ids at once, while other nodes wait for this one: each costs
// what is its own, not what there is of others.
void destroy_id(CmState& s, std::uint32_t number) {
  const auto it = s.ids.find(number);
  if (it == s.ids.end()) return;
  const Id& ending = it->second;
  end_connection(s, it->second);
  if (const auto listener = s.ids.find(ending.listener); listener != s.ids.end()) {
    --listener->second.requests_waiting;
  }
  if (ending.has_port) s.ports.erase({port_key(ending.port_space, ending.local.port), number});
  for (const std::uint32_t group : ending.groups) {
    s.multicasts.erase(group);
    give_back(s, ending.owner, &Program::groups);
  }
  if (ending.passive) {
    // Another life of the sender may have asked by the same number since.
    const auto asked = s.requests.find({ending.peer, ending.remote_id});
    if (asked != s.requests.end() && asked->second == number) s.requests.erase(asked);
  }
  // A request has no name at the program before it is accepted: only its own event can wait.
  std::vector<std::uint32_t> unseen;
  if (ending.uid != 0 || ending.listener != kNobody) unseen = drop_events(s, ending);
  give_back(s, ending.owner, &Program::ids);
  s.files.at(ending.file).ids.erase(number);
  wait_until(s, it->second, emu::kNever);
  s.ids.erase(it);
  for (const std::uint32_t other : unseen) {
    s.ids.at(other).listener = kNobody;  // that event has gone with its listener's
    destroy_id(s, other);
  }
}

}  // namespace hca
