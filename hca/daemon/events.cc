// What programs wait for: records in their pipes, kept where a pipe is full and taken back out when
// their object goes.
#include <linux/futex.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <climits>
#include <new>

#include <fmt/core.h>

#include "hca/daemon/control.h"

namespace hca {

namespace {

// Of one program that reads no events, in each pipe beside the thousands that it holds.
constexpr std::size_t kUnreadMax = 65536;

// false: the pipe is full. Who has closed it wants no events.
bool wrote(const emu::UniqueFd& pipe, const EventRecord& record) {
  return ::write(pipe.get(), &record, sizeof record) >= 0 || errno != EAGAIN;
}

}  // namespace

void Control::completion(ClientId id, std::uint32_t cq) {
  Client* client = find(id);
  if (client == nullptr) return;
  const auto queue = client->cqs.find(cq);
  if (queue == client->cqs.end()) return;
  const auto channel = client->channels.find(queue->second.channel);
  if (channel == client->channels.end()) return;
  woke_ = true;
  // The CQ is disarmed: without this record, who waits for it would wait for ever.
  (void)tell(channel->second, std::bit_cast<EventRecord>(ChannelRecord{cq, 0}));
}

void Control::wake_cq(ClientId id, std::uint32_t cq) {
  Client* client = find(id);
  if (client == nullptr) return;
  const auto queue = client->cqs.find(cq);
  if (queue == client->cqs.end()) return;
  auto* page = reinterpret_cast<CqPage*>(queue->second.region.data());
  ::syscall(SYS_futex, &page->tail, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
  woke_ = true;
}

void Control::async(ClientId id, AsyncEvent event, std::uint32_t number) {
  Client* client = find(id);
  if (client == nullptr || !client->events.end) return;
  const AsyncRecord record{static_cast<std::uint32_t>(event), number};
  if (tell(client->events, std::bit_cast<EventRecord>(record))) return;
  if (client->events_lost++ != 0 || client->events.unread.size() < kUnreadMax) return;
  complain(fmt::format("program {} reads no asynchronous events: {} wait, and more are dropped",
                       client->pid, kUnreadMax));
}

// What there is no room for is kept, and written when epoll says that there is.
bool Control::tell(Client::EventPipe& pipe, const EventRecord& record) try {
  write_unread(pipe);
  if (pipe.unread.empty() && wrote(pipe.end, record)) return true;
  if (pipe.unread.size() >= kUnreadMax) return false;
  pipe.unread.push_back(record);
  if (pipe.unread.size() > 1) return true;
  epoll_event event{};
  event.events = EPOLLOUT;
  event.data.fd = pipe.end.get();
  (void)::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, pipe.end.get(), &event);
  return true;
} catch (const std::bad_alloc&) {
  return false;
}

void Control::write_unread(Client::EventPipe& pipe) {
  if (pipe.unread.empty()) return;
  while (!pipe.unread.empty() && wrote(pipe.end, pipe.unread.front())) pipe.unread.pop_front();
  if (pipe.unread.empty()) unwatch_events(pipe.end.get());
}

void Control::has_room(int pipe) {
  for (Client* client : devices_) {
    if (client->events.end.get() == pipe) return write_unread(client->events);
    for (auto& [number, channel] : client->channels) {
      if (channel.end.get() == pipe) return write_unread(channel);
    }
  }
}

void Control::unwatch_events(int pipe) { ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, pipe, nullptr); }

void Control::recall(Client::EventPipe& pipe, const std::function<bool(const EventRecord&)>& gone) {
  if (!hca::recall(pipe.end.get(), gone)) {
    // Where there is no other descriptor, the one that service() makes again will do.
    spare_.reset();
    (void)hca::recall(pipe.end.get(), gone);
  }
  if (pipe.unread.empty()) return;
  std::erase_if(pipe.unread, gone);
  if (pipe.unread.empty()) unwatch_events(pipe.end.get());
}

void Control::recall_async(Client& client, AsyncSource source, std::uint32_t number) {
  recall(client.events, [=](const EventRecord& record) {
    const auto [event, of] = std::bit_cast<AsyncRecord>(record);
    return of == number && source_of(static_cast<AsyncEvent>(event)) == source;
  });
}

void Control::port_event(AsyncEvent event) {
  constexpr std::uint32_t kPort = 1;
  for (const Client* client : devices_) async(client->id, event, kPort);
}

}  // namespace hca
