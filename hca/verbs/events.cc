// Completion channels and asynchronous events: records in pipes that hcad writes. It takes those of
// a destroyed object back. The end of a pipe is the end of hcad.
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/uio.h>
#include <unistd.h>

#include <memory>
#include <mutex>
#include <new>
#include <utility>

#include "emu/clock/host.h"
#include "emu/ring/patience.h"
#include "hca/verbs/objects.h"

namespace hca {

namespace {

// One record: 1; hcad is gone: 0; -1 with errno otherwise (EAGAIN, EINTR).
template <class Record>
int read_record(int fd, Record& record) {
  const ssize_t got = ::read(fd, &record, sizeof record);
  if (got == static_cast<ssize_t>(sizeof record)) return 1;
  return got < 0 ? -1 : 0;
}

thread_local emu::Patience event_patience;  // of this thread, over all its channels

bool readable(int fd) {
  pollfd wanted{fd, POLLIN, 0};
  return ::poll(&wanted, 1, 0) != 0;
}

bool is_nonblocking(int fd) { return (::fcntl(fd, F_GETFL) & O_NONBLOCK) != 0; }

// The same, for a thread that means to sleep: who expects an answer soon keeps its core awake,
// unless one process alone has to work for it (NodePage::waiters_look).
template <class Record>
int await_record(int fd, Record& record, bool looks) {
  if (!looks || is_nonblocking(fd)) return read_record(fd, record);
  while (!readable(fd) && event_patience.look_again(emu::host_now_ns())) (void)::sched_yield();
  const int got = read_record(fd, record);
  event_patience.found(emu::host_now_ns());
  return got;
}

// The same without waiting, of a pipe that waits.
template <class Record>
int look_for_record(int pipe, Record& record) {
  const iovec to{&record, sizeof record};
  ssize_t got = 0;
  do {  // unlike a read that does not wait, this is interrupted
    got = ::vmsplice(pipe, &to, 1, SPLICE_F_NONBLOCK);
  } while (got < 0 && errno == EINTR);
  if (got == static_cast<ssize_t>(sizeof record)) return 1;
  return got < 0 ? -1 : 0;
}

// The same of the pipe behind async_fd, waiting as that one's flags say: in a read, which goes on
// after a signal whose handler restarts calls (SA_RESTART). A poll would not.
int await_async(const Session& session, AsyncRecord& record) {
  const int pipe = session.events.get();
  return is_nonblocking(session.async.get()) ? look_for_record(pipe, record)
                                             : read_record(pipe, record);
}

// Before a wait and after it: while this owns its lock, nobody closes the device. Otherwise it is
// closed and its context has gone, or all is a forked child's parent's; errno says EIO.
std::unique_lock<std::mutex> keep_open(Session& session) {
  std::unique_lock lock(session.closing, std::defer_lock);
  if (!session.link->abandoned()) {
    lock.lock();
    if (!session.closed) return lock;
    lock.unlock();
  }
  errno = EIO;
  return lock;
}

AsyncSource source_of(const ibv_async_event& event) {
  return source_of(static_cast<AsyncEvent>(event.event_type));
}

// Fills the element and counts the event; false: its object is gone, nobody may hear of it.
bool attach_object(Context& context, std::uint32_t number, ibv_async_event& event) {
  const std::lock_guard lock(context.table_lock);
  const AsyncSource source = source_of(event);
  if (source == AsyncSource::qp) {
    const auto it = context.qps.find(number);
    if (it == context.qps.end()) return false;
    event.element.qp = base(it->second);
    ++it->second->async_events;
  } else if (source == AsyncSource::srq) {
    const auto it = context.srqs.find(number);
    if (it == context.srqs.end()) return false;
    event.element.srq = it->second;
    ++it->second->async_events;
  } else if (source == AsyncSource::cq) {
    const auto it = context.cqs.find(number);
    if (it == context.cqs.end()) return false;
    event.element.cq = base(it->second);
    ++it->second->async_events;
  } else {
    event.element.port_num = 1;
  }
  return true;
}

void acknowledge(pthread_mutex_t& mutex, pthread_cond_t& cond, std::uint32_t& count,
                 std::uint32_t events) {
  pthread_mutex_lock(&mutex);
  count += events;
  pthread_cond_signal(&cond);
  pthread_mutex_unlock(&mutex);
}

}  // namespace

void wait_acknowledged(pthread_mutex_t& mutex, pthread_cond_t& cond,
                       const std::uint32_t& acknowledged, std::uint32_t got) {
  pthread_mutex_lock(&mutex);
  while (acknowledged != got) pthread_cond_wait(&cond, &mutex);
  pthread_mutex_unlock(&mutex);
}

}  // namespace hca

using namespace hca;

extern "C" {

ibv_comp_channel* ibv_create_comp_channel(ibv_context* context) {
  if (context == nullptr) return null_with(EINVAL);
  std::unique_ptr<Channel> channel(new (std::nothrow) Channel{});
  int fds[2];
  if (!channel) return null_with(ENOMEM);
  if (::pipe2(fds, O_CLOEXEC) != 0) return nullptr;
  channel->read_end = emu::UniqueFd(fds[0]);
  const emu::UniqueFd write_end(fds[1]);  // hcad gets a copy; ours closes
  ControlRequest request{};
  request.op = ControlOp::create_channel;
  Answered answered;
  const int error = to_context(context)->link().ask(request, answered, write_end.get());
  if (error != 0) return null_with(error);
  channel->number = answered.reply.number;
  channel->context = context;
  channel->fd = channel->read_end.get();
  return channel.release();
}

int ibv_destroy_comp_channel(ibv_comp_channel* base_channel) {
  if (base_channel == nullptr) return EINVAL;
  if (__atomic_load_n(&base_channel->refcnt, __ATOMIC_RELAXED) != 0) return EBUSY;
  auto* channel = static_cast<Channel*>(base_channel);
  ControlRequest request{};
  request.op = ControlOp::destroy_channel;
  request.number = channel->number;
  (void)to_context(channel->context)->link().ask(request);
  delete channel;
  return 0;
}

}  // extern "C"

namespace {

// hcad has gone: a CQ that was armed and has something to poll, or null.
Cq* fire_after_death(Context& context, const ibv_comp_channel* channel) {
  context.link().look_dead();
  if (context.link().abandoned()) return nullptr;
  note_death(context);
  const std::lock_guard lock(context.table_lock);
  for (auto& [number, cq] : context.cqs) {
    if (cq->channel != channel) continue;
    CqPage& page = cq->page();
    const bool waiting = page.tail.load() != page.head.load() || flushes_waiting(context, *cq);
    if (waiting && page.armed.exchange(kCqDisarmed) != kCqDisarmed) {
      ++cq->completion_events;
      return cq;
    }
  }
  return nullptr;
}

}  // namespace

extern "C" {

int ibv_get_cq_event(ibv_comp_channel* channel, ibv_cq** cq, void** cq_context) {
  if (channel == nullptr || cq == nullptr || cq_context == nullptr) {
    errno = EINVAL;
    return -1;
  }
  Context* context = to_context(channel->context);
  const std::shared_ptr<Session> session = context->session;
  const bool looks = context->node().waiters_look != 0;
  if (!keep_open(*session)) return -1;
  while (true) {
    ChannelRecord record;
    const int got = await_record(channel->fd, record, looks);
    if (got < 0) return -1;
    const auto open = keep_open(*session);
    if (!open) return -1;
    if (got == 0) {
      Cq* fired = fire_after_death(*context, channel);
      if (fired == nullptr) {
        errno = EIO;
        return -1;
      }
      *cq = base(fired);
      *cq_context = fired->cq_context;
      return 0;
    }
    const std::lock_guard lock(context->table_lock);
    const auto it = context->cqs.find(record.cq);
    // Between our reading and here it was destroyed, and this event with it.
    if (it == context->cqs.end() || it->second->channel != channel) continue;
    ++it->second->completion_events;
    *cq = base(it->second);
    *cq_context = it->second->cq_context;
    return 0;
  }
}

void ibv_ack_cq_events(ibv_cq* cq, unsigned count) {
  if (cq != nullptr) acknowledge(cq->mutex, cq->cond, cq->comp_events_completed, count);
}

int ibv_get_async_event(ibv_context* base_context, ibv_async_event* event) {
  if (base_context == nullptr || event == nullptr) {
    errno = EINVAL;
    return -1;
  }
  Context* context = to_context(base_context);
  const std::shared_ptr<Session> session = context->session;
  if (!keep_open(*session)) return -1;  // in a forked child the events are its parent's
  while (true) {
    AsyncRecord record;
    const int got = await_async(*session, record);
    if (got < 0) return -1;
    const auto open = keep_open(*session);
    if (!open) return -1;
    if (got == 0) {
      context->link().look_dead();
      note_death(*context);
      const std::lock_guard lock(context->table_lock);
      if (context->fatal_told) {
        errno = EIO;
        return -1;
      }
      context->fatal_told = true;
      // The last event: from now on there is nothing to wake up for.
      ::epoll_ctl(session->async.get(), EPOLL_CTL_DEL, session->events.get(), nullptr);
      event->event_type = IBV_EVENT_DEVICE_FATAL;
      event->element.port_num = 1;
      return 0;
    }
    event->event_type = static_cast<ibv_event_type>(record.event);
    if (attach_object(*context, record.number, *event)) return 0;
  }
}

void ibv_ack_async_event(ibv_async_event* event) {
  if (event == nullptr) return;
  const AsyncSource source = source_of(*event);
  if (source == AsyncSource::qp) {
    ibv_qp* qp = event->element.qp;
    acknowledge(qp->mutex, qp->cond, qp->events_completed, 1);
  } else if (source == AsyncSource::srq) {
    ibv_srq* srq = event->element.srq;
    acknowledge(srq->mutex, srq->cond, srq->events_completed, 1);
  } else if (source == AsyncSource::cq) {
    ibv_cq* cq = event->element.cq;
    acknowledge(cq->mutex, cq->cond, cq->async_events_completed, 1);
  }
}

}  // extern "C"
