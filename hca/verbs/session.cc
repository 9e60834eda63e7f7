#include "hca/verbs/session.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cstring>
#include <utility>

#include "hca/verbs/nodes.h"
#include "hca/verbs/say.h"

namespace hca {

namespace {

bool make_events(Session& session, emu::UniqueFd& write_end) {
  int fds[2];
  if (::pipe2(fds, O_CLOEXEC) != 0) return false;
  session.events = emu::UniqueFd(fds[0]);
  write_end = emu::UniqueFd(fds[1]);
  session.async = emu::UniqueFd(::epoll_create1(EPOLL_CLOEXEC));
  epoll_event event{};
  event.events = EPOLLIN;
  return session.async && ::epoll_ctl(session.async.get(), EPOLL_CTL_ADD, fds[0], &event) == 0;
}

// 0 or an errno. The node page's descriptor closes: it has no further use, and programs count
// theirs.
int take_pages(Session& session, Answered& answered) {
  if (!answered.fds[2]) return answered.without_fds();
  auto node =
      emu::Region::map(std::move(answered.fds[0]), sizeof(NodePage), emu::Access::read_only);
  auto doorbells =
      emu::Region::map(std::move(answered.fds[1]), sizeof(DoorbellPage), emu::Access::read_write);
  if (!node || !doorbells) return EPROTO;
  (void)node->take_fd();
  session.node_page = std::make_shared<const emu::Region>(std::move(*node));
  session.doorbells = std::move(*doorbells);
  session.doorbell_fd = std::move(answered.fds[2]);
  const auto* page = &node_in(*session.node_page);
  auto* rings = reinterpret_cast<DoorbellPage*>(session.doorbells.data());
  const bool known = page->magic == kNodeMagic && page->version == kAbiVersion &&
                     rings->magic == kDoorbellMagic && rings->version == kAbiVersion &&
                     rings->entries == kDoorbellEntries;
  if (!known) return EPROTO;
  rings->takes_inline.store(1, std::memory_order_relaxed);
  return 0;
}

}  // namespace

std::unique_ptr<Session> open_session(const char* socket_path) {
  std::unique_ptr<Session> session(new (std::nothrow) Session);
  if (!session) return null_with(ENOMEM);
  session->link = Link::open(socket_path);
  if (!session->link) return nullptr;
  // hcad reads and writes registered memory by process_vm_readv; where Yama restricts that to
  // parents, this lets our hcad in, and with several of them any process of this user: the kernel
  // keeps one name. Elsewhere the kernel does not know the call.
  const unsigned long reader = node_sockets().size() > 1
                                   ? PR_SET_PTRACER_ANY
                                   : static_cast<unsigned long>(session->link->hcad());
  ::prctl(PR_SET_PTRACER, reader, 0, 0, 0);
  emu::UniqueFd write_end;
  if (!make_events(*session, write_end)) {
    const int error = errno;
    say("a pipe for events: {}", std::strerror(error));
    return null_with(error);
  }

  ControlRequest request{};
  request.op = ControlOp::hello;
  request.hello = kOurHello;
  Answered answered;
  int error = session->link->ask(request, answered, write_end.get());
  if (error == 0) error = take_pages(*session, answered);
  if (error == EPROTO) {
    say("the hcad at {} speaks another version than this library ({}.{}): rebuild one of them",
        socket_path, kControlVersion, kAbiVersion);
    return null_with(EPROTO);
  }
  if (error != 0) {
    say("the hcad at {} cannot serve this program: {}", socket_path, std::strerror(error));
    return null_with(error);
  }
  return session;
}

}  // namespace hca
