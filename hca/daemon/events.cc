// What programs wait for: records in their pipes, kept where a pipe is full and taken back out when
// their object goes.
#include <linux/futex.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <new>

#include <fmt/core.h>

#include "hca/daemon/control.h"
#include "hca/daemon/recall.h"

namespace hca {

namespace {

// Of one program that reads no events, in each pipe beside the thousands that it holds.
constexpr std::size_t kUnreadMax = 65536;

// false: the pipe is full. Who has closed it wants no events.
template <class Record>
bool wrote(int pipe, const Record& record) {
  return ::write(pipe, &record, sizeof record) >= 0 || errno != EAGAIN;
}

}  // namespace

void Control::completion(ClientId id, std::uint32_t cq) {
  Client* client = find(id);
  if (client == nullptr) return;
  const auto queue = client->cqs.find(cq);
  if (queue == client->cqs.end()) return;
  const auto channel = client->channels.find(queue->second.channel);
  if (channel == client->channels.end()) return;
  const ChannelRecord record{cq, 0};
  auto& [events, unread] = channel->second;
  woke_ = true;
  write_unread(events.get(), unread);
  if (unread.empty() && wrote(events.get(), record)) return;
  keep_event(channel->second, record);
}

// The CQ is disarmed: without this record, who waits for it would wait for ever.
void Control::keep_event(Client::CompletionChannel& channel, const ChannelRecord& record) try {
  if (channel.unread.size() >= kUnreadMax) return;
  channel.unread.push_back(record);
  if (channel.unread.size() == 1) watch_events(channel.events.get());
} catch (const std::bad_alloc&) {
  // As beyond the most that are kept.
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
  if (client == nullptr || !client->events) return;
  const AsyncRecord record{static_cast<std::uint32_t>(event), number};
  write_unread(client->events.get(), client->unread);
  if (client->unread.empty() && wrote(client->events.get(), record)) return;
  keep_event(*client, record);
}

// Written when the pipe has room: epoll says so.
void Control::keep_event(Client& client, const AsyncRecord& record) try {
  if (client.unread.size() < kUnreadMax) {
    client.unread.push_back(record);
    if (client.unread.size() == 1) watch_events(client.events.get());
    return;
  }
  if (client.events_lost++ == 0) {
    complain(fmt::format("program {} reads no asynchronous events: {} wait, and more are dropped",
                         client.pid, kUnreadMax));
  }
} catch (const std::bad_alloc&) {
  ++client.events_lost;
}

template <class Record>
void Control::write_unread(int pipe, std::deque<Record>& unread) {
  if (unread.empty()) return;
  while (!unread.empty() && wrote(pipe, unread.front())) unread.pop_front();
  if (unread.empty()) unwatch_events(pipe);
}

void Control::has_room(int pipe) {
  for (Client* client : devices_) {
    if (client->events.get() == pipe) return write_unread(pipe, client->unread);
    for (auto& [number, channel] : client->channels) {
      if (channel.events.get() == pipe) return write_unread(pipe, channel.unread);
    }
  }
}

void Control::watch_events(int pipe) {
  epoll_event event{};
  event.events = EPOLLOUT;
  event.data.fd = pipe;
  (void)::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, pipe, &event);
}

void Control::unwatch_events(int pipe) { ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, pipe, nullptr); }

// Where there is no other descriptor, the one that service() makes again will do.
void Control::recall(int pipe, const std::function<bool(const EventRecord&)>& gone) {
  if (hca::recall(pipe, gone)) return;
  spare_.reset();
  (void)hca::recall(pipe, gone);
}

void Control::recall_async(Client& client, AsyncSource source, std::uint32_t number) {
  const auto is_its = [=](std::uint32_t event, std::uint32_t of) {
    return of == number && source_of(static_cast<AsyncEvent>(event)) == source;
  };
  recall(client.events.get(),
         [&](const EventRecord& record) { return is_its(record[0], record[1]); });
  if (client.unread.empty()) return;
  std::erase_if(client.unread, [&](const AsyncRecord& r) { return is_its(r.event, r.number); });
  if (client.unread.empty()) unwatch_events(client.events.get());
}

void Control::port_event(AsyncEvent event) {
  constexpr std::uint32_t kPort = 1;
  for (const Client* client : devices_) async(client->id, event, kPort);
}

}  // namespace hca
