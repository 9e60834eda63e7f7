// Events on their way to programs, and the life of ids: what was reported is counted, because a
// program may only free an id after it has acknowledged as many.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "hca/cm/state.h"

namespace hca {

Id* new_id(CmState& s, CmFileId file) {
  if (s.ids.size() >= s.options.ids_max) return nullptr;
  while (s.ids.contains(s.next_number) || s.next_number == kNobody || s.next_number == 0) {
    ++s.next_number;
  }
  // Small numbers: librdmacm keeps ids in a table indexed by them.
  const std::uint32_t number = s.next_number++;
  if (s.next_number > 4 * s.options.ids_max) s.next_number = 1;
  Id& id = s.ids[number];
  id.number = number;
  id.file = file;
  id.psn = static_cast<std::uint32_t>(s.prng()) & 0xffffff;
  return &id;
}

Id* find_id(CmState& s, CmFileId file, std::uint32_t number) {
  const auto it = s.ids.find(number);
  return it != s.ids.end() && it->second.file == file ? &it->second : nullptr;
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
  tell_file(s, id.file);
}

bool has_event(CmState& s, const Id& id, CmEvent event) {
  return std::ranges::any_of(s.files[id.file].events, [&](const WaitingEvent& e) {
    return e.id == id.number && e.body.event == static_cast<std::uint32_t>(event);
  });
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
  }
  if (const auto id = s.ids.find(event.request); id != s.ids.end()) id->second.listener = kNobody;
  if (const auto mc = s.multicasts.find(event.multicast); mc != s.multicasts.end()) {
    ++mc->second.events_reported;
  }
  tell_file(s, number);
  return answer_with(event.body, to);
}

void drop_events(CmState& s, std::uint32_t number) {
  for (auto& [file, state] : s.files) {
    const auto dropped = std::erase_if(state.events, [number](const WaitingEvent& e) {
      return e.id == number || e.request == number;
    });
    if (dropped != 0) tell_file(s, file);
  }
}

void destroy_id(CmState& s, std::uint32_t number) {
  const auto it = s.ids.find(number);
  if (it == s.ids.end()) return;
  const Id& ending = it->second;
  const bool listened = ending.state == IdState::listening;
  end_connection(s, it->second);
  // Requests that the program never saw go with their listener.
  std::vector<std::uint32_t> unseen;
  for (const auto& [other, id] : s.ids) {
    if (!listened) break;
    if (id.listener == number) unseen.push_back(other);
  }
  if (const auto listener = s.ids.find(ending.listener); listener != s.ids.end()) {
    --listener->second.requests_waiting;
  }
  if (ending.has_port) {
    const auto [first, last] = s.ports.equal_range(port_key(ending.port_space, ending.local.port));
    s.ports.erase(std::find_if(first, last, [&](const auto& e) { return e.second == number; }));
  }
  std::erase_if(s.multicasts, [number](const auto& mc) { return mc.second.id == number; });
  if (ending.passive) {
    // Another life of the sender may have asked by the same number since.
    const auto asked = s.requests.find({ending.peer, ending.remote_id});
    if (asked != s.requests.end() && asked->second == number) s.requests.erase(asked);
  }
  drop_events(s, number);
  s.ids.erase(it);
  for (const std::uint32_t other : unseen) destroy_id(s, other);
}

}  // namespace hca
