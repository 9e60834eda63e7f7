// What an rdma_cm channel's descriptor is to the rest of a program: readable if and only if an
// event waits, and gone when another file takes its number, however that came about. In: the name
// of a case and an address of this node. Exit code 0: it is so.
#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <netinet/in.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>

namespace {

constexpr unsigned kAll = ~0U;
sockaddr_in g_own{};

void must(bool good, const char* what) {
  if (good) return;
  std::fprintf(stderr, "%s: %s\n", what, std::strerror(errno));
  ::_exit(1);
}

bool readable(const rdma_event_channel* channel) {
  pollfd look{channel->fd, POLLIN, 0};
  return ::poll(&look, 1, 0) == 1;
}

rdma_event_channel* open_channel() {
  rdma_event_channel* channel = rdma_create_event_channel();
  must(channel != nullptr, "rdma_create_event_channel");
  return channel;
}

// An id whose first event waits.
rdma_cm_id* resolve(rdma_event_channel* channel) {
  rdma_cm_id* id = nullptr;
  must(rdma_create_id(channel, &id, nullptr, RDMA_PS_UDP) == 0, "rdma_create_id");
  auto* const to = reinterpret_cast<sockaddr*>(&g_own);
  must(rdma_resolve_addr(id, nullptr, to, 1000) == 0, "rdma_resolve_addr");
  must(readable(channel), "an event waits");
  return id;
}

void take(rdma_event_channel* channel) {
  rdma_cm_event* event = nullptr;
  must(rdma_get_cm_event(channel, &event) == 0, "rdma_get_cm_event");
  must(rdma_ack_cm_event(event) == 0, "rdma_ack_cm_event");
}

void works(rdma_event_channel* channel) {
  rdma_cm_id* id = resolve(channel);
  take(channel);
  must(!readable(channel), "no event waits");
  must(rdma_destroy_id(id) == 0, "rdma_destroy_id");
}

int plain_file() {
  const int fd = ::memfd_create("plain", MFD_CLOEXEC);
  must(fd >= 0, "memfd_create");
  return fd;
}

void is_plain(int fd) {
  struct stat info {};
  must(::fstat(fd, &info) == 0 && S_ISREG(info.st_mode), "fstat of a plain file");
  must(::write(fd, "x", 1) == 1, "write to a plain file");
}

// What takes the numbers of descriptors that are free; it stays as it is, whatever else goes on.
void fill(int from) {
  const int plain = plain_file();
  std::array<int, 8> fds{};
  for (int& fd : fds) {
    fd = ::fcntl(plain, F_DUPFD, from);
    must(fd >= from, "fcntl");
  }
  works(open_channel());
  is_plain(plain);
  for (const int fd : fds) is_plain(fd);
}

void readable_case() {
  rdma_event_channel* channel = open_channel();
  must(!readable(channel), "nothing has happened");
  must(rdma_destroy_id(resolve(channel)) == 0, "rdma_destroy_id");
  must(!readable(channel), "its event was taken back");
  rdma_event_channel* other = open_channel();
  rdma_cm_id* id = resolve(channel);
  must(rdma_migrate_id(id, other) == 0, "rdma_migrate_id");
  must(!readable(channel) && readable(other), "its event went with it");
  take(other);
  rdma_cm_id* first = resolve(other);
  rdma_cm_id* second = resolve(other);
  must(rdma_destroy_id(first) == 0, "rdma_destroy_id");
  must(readable(other), "one of two events waits");
  take(other);
  must(!readable(other), "both are gone");
  must(rdma_destroy_id(second) == 0 && rdma_destroy_id(id) == 0, "rdma_destroy_id");
  // Asked without waiting, it says that there is none.
  must(::fcntl(other->fd, F_SETFL, O_NONBLOCK) == 0, "fcntl");
  rdma_cm_event* event = nullptr;
  must(rdma_get_cm_event(other, &event) != 0 && errno == EAGAIN, "EAGAIN");
  works(other);
}

void close_range_case() {
  const rdma_event_channel* channel = open_channel();
  const auto number = static_cast<unsigned>(channel->fd);
  must(::close_range(number, number, CLOSE_RANGE_CLOEXEC) == 0, "close_range");
  works(const_cast<rdma_event_channel*>(channel));
  must(::close_range(number, number, 0) == 0, "close_range");
  fill(channel->fd);
  const rdma_event_channel* last = open_channel();
  must(::close_range(static_cast<unsigned>(last->fd), kAll, 0) == 0, "close_range");
  fill(last->fd);
}

void closefrom_case() {
  const rdma_event_channel* channel = open_channel();
  ::closefrom(channel->fd);
  fill(channel->fd);
}

void dup2_case() {
  rdma_event_channel* channel = open_channel();
  must(::dup2(-1, channel->fd) == -1 && errno == EBADF, "dup2 of nothing");
  must(::dup2(channel->fd, channel->fd) == channel->fd, "dup2 to itself");
  works(channel);
  must(::dup2(plain_file(), channel->fd) == channel->fd, "dup2");
  is_plain(channel->fd);
  channel = open_channel();
  must(::dup3(plain_file(), channel->fd, O_CLOEXEC) == channel->fd, "dup3");
  is_plain(channel->fd);
  // The other way round the channel has another number.
  channel = open_channel();
  const int plain = plain_file();
  must(::dup2(channel->fd, plain) == plain && ::close(channel->fd) == 0, "dup2 of a channel");
  channel->fd = plain;
  works(channel);
}

// A program may keep its descriptors above some number, or give one to somebody else to close.
void dup_case() {
  rdma_event_channel* channel = open_channel();
  const auto moves_to = [channel](int fd) {
    must(fd >= 0 && ::close(channel->fd) == 0, "a descriptor of the channel once more");
    channel->fd = fd;
    works(channel);
  };
  moves_to(::dup(channel->fd));
  moves_to(::fcntl(channel->fd, F_DUPFD, 100));
  must(channel->fd >= 100 && ::fcntl(channel->fd, F_GETFD) == 0, "F_DUPFD");
  moves_to(::fcntl64(channel->fd, F_DUPFD_CLOEXEC, 100));
  must(::fcntl64(channel->fd, F_GETFD) == FD_CLOEXEC, "F_DUPFD_CLOEXEC");
  const int twin = ::dup(channel->fd);
  must(twin >= 0 && ::close(twin) == 0, "dup");
  works(channel);
  const int plain = plain_file();
  must(::dup2(plain, twin) == twin, "dup2");
  is_plain(twin);
}

void wait_for(pid_t child) {
  int status = 0;
  must(child > 0 && ::waitpid(child, &status, 0) == child && status == 0, "the child");
}

// Whatever a child does with its descriptors, its parent's are as they were.
void child_case() {
  rdma_event_channel* channel = open_channel();
  const int plain = plain_file();
  pid_t child = ::fork();
  if (child == 0) {
    if (::dup2(plain, channel->fd) != channel->fd) ::_exit(1);
    is_plain(channel->fd);
    ::_exit(::close_range(3, kAll, 0) == 0 ? 0 : 2);
  }
  wait_for(child);
  works(channel);
  // It has its parent's memory, and descriptors of its own.
  child = ::vfork();
  if (child == 0) ::_exit(::close_range(3, kAll, 0) == 0 ? 0 : 2);
  wait_for(child);
  works(channel);
  child = ::vfork();
  if (child == 0) ::_exit(::close(channel->fd) == 0 ? 0 : 2);
  wait_for(child);
  works(channel);
}

}  // namespace

int main(int, char** argv) {
  g_own.sin_family = AF_INET;
  g_own.sin_port = htons(7000);
  if (::inet_pton(AF_INET, argv[2], &g_own.sin_addr) != 1) return 2;
  const std::string_view which = argv[1];
  if (which == "readable") readable_case();
  if (which == "close_range") close_range_case();
  if (which == "closefrom") closefrom_case();
  if (which == "dup2") dup2_case();
  if (which == "dup") dup_case();
  if (which == "child") child_case();
  std::printf("%s\n", argv[1]);
  return 0;
}
