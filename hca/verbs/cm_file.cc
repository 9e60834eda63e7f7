// /dev/infiniband/rdma_cm for a stock librdmacm: the calls that open, write, look at and close it,
// give it another number or another file its number, in front of the C library's. What a program
// writes goes to hcad as it is (hca/cm answers it), and the descriptor that it holds is the read
// end of a pipe with a byte in it while events wait, so that poll, epoll and O_NONBLOCK mean what
// they should. Every other file costs one test of a bit.
#include <fcntl.h>
#include <linux/close_range.h>
#include <pthread.h>
#include <rdma/rdma_user_cm.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "hca/verbs/counter_file.h"
#include "hca/verbs/link.h"
#include "hca/verbs/marked_fds.h"
#include "hca/verbs/next.h"
#include "hca/verbs/nodes.h"
#include "hca/verbs/objects.h"
#include "hca/verbs/redirect.h"
#include "hca/verbs/umad_file.h"

namespace hca {

namespace {

constexpr char kCmPath[] = "/dev/infiniband/rdma_cm";

struct CmFile {
  std::unique_ptr<Link> link;
  // The program's descriptor once more: who waits for an event while another thread closes that one
  // goes on waiting, as in the kernel's call.
  emu::UniqueFd tokens;
  std::uint32_t number = 0;  // hcad's name for it
};

MarkedFds g_is_cm;
std::mutex g_files_lock;
// The process whose descriptors these are. A child of vfork() has its parent's memory and
// descriptors of its own: what it closes is open in its parent still.
std::atomic<pid_t> g_owner{0};

// Never destroyed: programs write while they exit.
std::unordered_map<int, std::shared_ptr<CmFile>>& files() {
  static auto* const all = new std::unordered_map<int, std::shared_ptr<CmFile>>;
  return *all;
}

bool owns_files() { return g_owner.load(std::memory_order_relaxed) == ::getpid(); }

bool is_cm(int fd) { return g_is_cm.has(fd) && owns_files(); }

std::shared_ptr<CmFile> find(int fd) {
  const std::lock_guard lock(g_files_lock);
  const auto it = files().find(fd);
  return it == files().end() ? nullptr : it->second;
}

// A thread that does not fork may hold the lock: the child, which has not this thread, would wait
// for it for ever.
void before_fork() { g_files_lock.lock(); }
void in_parent() { g_files_lock.unlock(); }
void in_child() {
  g_owner.store(::getpid(), std::memory_order_relaxed);
  g_files_lock.unlock();
}

void own_files() {
  static const int handlers = ::pthread_atfork(before_fork, in_parent, in_child);
  (void)handlers;
  g_owner.store(::getpid(), std::memory_order_relaxed);
}

int fail_with(int error) {
  errno = error;
  return -1;
}

// A descriptor like the one of the character device, or -1.
int open_cm(const char* socket_path, int flags) {
  int fds[2];
  if (::pipe2(fds, O_CLOEXEC | (flags & O_NONBLOCK)) != 0) return -1;
  emu::UniqueFd read_end(fds[0]);
  const emu::UniqueFd write_end(fds[1]);  // hcad gets a copy; ours closes
  if (!MarkedFds::fits(read_end.get())) return fail_with(EMFILE);
  auto file = std::make_shared<CmFile>();
  file->tokens = emu::UniqueFd(::fcntl(read_end.get(), F_DUPFD_CLOEXEC, 0));
  if (!file->tokens) return -1;
  file->link = Link::open(socket_path);
  if (!file->link) return -1;
  ControlRequest request{};
  request.op = ControlOp::open_cm;
  request.hello = kOurHello;
  Answered answered;
  if (const int error = file->link->ask(request, answered, write_end.get())) {
    return fail_with(error);
  }
  file->number = answered.reply.number;
  own_files();
  const std::lock_guard lock(g_files_lock);
  const int fd = read_end.release();
  files()[fd] = std::move(file);
  g_is_cm.set(fd, true);
  return fd;
}

// Sends a command and brings its answer to where the command says, no more of it than there is
// room for. 0 or an errno.
int run(const CmFile& file, std::span<const std::byte> command, std::uint64_t response) {
  rdma_ucm_cmd_hdr header;
  std::memcpy(&header, command.data(), sizeof header);
  std::array<std::byte, kCmBytesMax> bytes;
  std::size_t got = 0;
  if (const int error = file.link->talk(command, bytes, got)) return error;
  CmReply reply;
  if (got < sizeof reply) return EIO;
  std::memcpy(&reply, bytes.data(), sizeof reply);
  if (reply.error != 0) return reply.error;
  if (reply.bytes > got - sizeof reply) return EIO;
  if (response != 0) {
    std::memcpy(reinterpret_cast<void*>(response), bytes.data() + sizeof reply,
                std::min<std::size_t>(reply.bytes, header.out));
  }
  return 0;
}

// Waits for the byte as the descriptor's flags say, then fetches an event; hcad puts another byte
// there if more of them wait. Between the two the event may go to another thread, or be taken back
// because its id ends.
int next_event(const CmFile& file, std::span<const std::byte> command, std::uint64_t response) {
  while (true) {
    char token = 0;
    const ssize_t got = ::read(file.tokens.get(), &token, 1);
    if (got < 0) return errno;
    if (got == 0) return EIO;  // hcad has gone
    const int error = run(file, command, response);
    if (error != EAGAIN) return error;
  }
}

// Where the answer goes: the first word of every command that has one, but for two.
std::uint64_t response_of(const rdma_ucm_cmd_hdr& header, std::span<const std::byte> in) {
  std::uint64_t response = 0;
  const std::size_t at = header.cmd == RDMA_USER_CM_CMD_CREATE_ID ? 8 : 0;
  if (header.out == 0 || in.size() < at + sizeof response) return 0;
  std::memcpy(&response, in.data() + at, sizeof response);
  return response;
}

// What hcad cannot know: the bytes behind a pointer, the file behind a descriptor. Returns how many
// bytes were added; -1: there is no such file, or it is too long.
int add_meaning(const rdma_ucm_cmd_hdr& header, std::span<const std::byte> in,
                std::span<std::byte> to) {
  if (header.cmd == RDMA_USER_CM_CMD_SET_OPTION && in.size() >= sizeof(rdma_ucm_set_option)) {
    rdma_ucm_set_option option;
    std::memcpy(&option, in.data(), sizeof option);
    if (option.optlen > to.size()) return -1;
    std::memcpy(to.data(), reinterpret_cast<const void*>(option.optval), option.optlen);
    return static_cast<int>(option.optlen);
  }
  if (header.cmd == RDMA_USER_CM_CMD_MIGRATE_ID && in.size() >= sizeof(rdma_ucm_migrate_id)) {
    rdma_ucm_migrate_id migrate;
    std::memcpy(&migrate, in.data(), sizeof migrate);
    const auto old = find(static_cast<int>(migrate.fd));
    if (old == nullptr) return -1;
    std::memcpy(to.data(), &old->number, sizeof old->number);
    return sizeof old->number;
  }
  return 0;
}

ssize_t command(int fd, const void* bytes, std::size_t count) {
  const auto file = find(fd);
  rdma_ucm_cmd_hdr header;
  std::array<std::byte, kCmBytesMax> whole;
  if (file == nullptr || count < sizeof header || count > whole.size()) return fail_with(EINVAL);
  std::memcpy(&header, bytes, sizeof header);
  if (header.in > count - sizeof header) return fail_with(EINVAL);
  std::memcpy(whole.data(), bytes, count);
  const auto in = std::span(whole).subspan(sizeof header, header.in);
  const int more = add_meaning(header, in, std::span(whole).subspan(sizeof header + header.in));
  if (more < 0) return fail_with(EINVAL);
  const auto sent = std::span(whole).first(sizeof header + header.in + static_cast<unsigned>(more));
  const std::uint64_t response = response_of(header, in);
  if (header.out != 0 && response == 0) return fail_with(EFAULT);
  const int error = header.cmd == RDMA_USER_CM_CMD_GET_EVENT ? next_event(*file, sent, response)
                                                             : run(*file, sent, response);
  return error == 0 ? static_cast<ssize_t>(count) : fail_with(error);
}

void forget(int fd) {
  std::shared_ptr<CmFile> file;
  const std::lock_guard lock(g_files_lock);
  const auto it = files().find(fd);
  if (it == files().end()) return;
  file = std::move(it->second);
  files().erase(it);
  g_is_cm.set(fd, false);
}

// Before the descriptors close, so that ours behind them have closed when their numbers are free.
void forget_range(unsigned first, unsigned last) {
  if (!owns_files()) return;
  std::vector<std::shared_ptr<CmFile>> ended;  // they end without the lock
  const std::lock_guard lock(g_files_lock);
  for (auto it = files().begin(); it != files().end();) {
    const auto fd = static_cast<unsigned>(it->first);
    if (fd < first || fd > last) {
      ++it;
      continue;
    }
    g_is_cm.set(it->first, false);
    ended.push_back(std::move(it->second));
    it = files().erase(it);
  }
}

// `to` is what `from` is now; `result`: of the call that made it so, or not.
int duplicated(int result, int from, int to) {
  if (result >= 0) follow_counter(from, to);
  if (result < 0 || from == to || (!is_cm(from) && !is_cm(to))) return result;
  std::shared_ptr<CmFile> ended;
  const std::lock_guard lock(g_files_lock);
  if (const auto old = files().extract(to); !old.empty()) ended = old.mapped();
  const auto source = files().find(from);
  const bool cm = source != files().end() && MarkedFds::fits(to);
  if (cm) files()[to] = std::shared_ptr(source->second);
  g_is_cm.set(to, cm);
  return result;
}

// `result`: of an fcntl.
int controlled(int result, int fd, int what) {
  const bool duplicates = what == F_DUPFD || what == F_DUPFD_CLOEXEC;
  return duplicates ? duplicated(result, fd, result) : result;
}

// The path and whether it is ours; programs not on a node see the kernel's.
bool opens_cm(const char* path) {
  return path != nullptr && path[0] == '/' && std::strcmp(path, kCmPath) == 0 &&
         !node_sockets().empty();
}

template <class Function>
int open_file(Function real, const char* path, int flags, mode_t mode) {
  // Of several nodes the first: one descriptor speaks with one hcad.
  if (opens_cm(path)) return open_cm(node_sockets().front().c_str(), flags);
  if (const auto umad = open_umad(path, flags)) return *umad;
  if (const auto counter = open_counter(path, flags)) return *counter;
  PathRoom room;
  return real(redirected(path, room), flags, mode);
}

int looked_at(int result, int fd, struct stat* info) {
  if (result == 0 && is_cm(fd)) info->st_mode = S_IFCHR | 0600;
  return result;
}

}  // namespace

}  // namespace hca

using namespace hca;

// By their names for the linker: the headers rename open and fstat where files may be large.
extern "C" {

int flitnet_open(const char* path, int flags, ...) __asm__("open");
int flitnet_open64(const char* path, int flags, ...) __asm__("open64");
ssize_t flitnet_write(int fd, const void* bytes, std::size_t count) __asm__("write");
int flitnet_close(int fd) __asm__("close");
int flitnet_close_range(unsigned first, unsigned last, int flags) __asm__("close_range");
void flitnet_closefrom(int first) __asm__("closefrom");
int flitnet_dup(int from) __asm__("dup");
int flitnet_dup2(int from, int to) __asm__("dup2");
int flitnet_dup3(int from, int to, int flags) __asm__("dup3");
int flitnet_fcntl(int fd, int what, ...) __asm__("fcntl");
int flitnet_fcntl64(int fd, int what, ...) __asm__("fcntl64");
int flitnet_fstat(int fd, struct stat* info) __asm__("fstat");
int flitnet_fstat64(int fd, struct stat* info) __asm__("fstat64");
// fstat as C libraries before 2.33 had it, and open without a mode as _FORTIFY_SOURCE has it.
int flitnet_fxstat(int version, int fd, struct stat* info) __asm__("__fxstat");
int flitnet_fxstat64(int version, int fd, struct stat* info) __asm__("__fxstat64");
int flitnet_open_2(const char* path, int flags) __asm__("__open_2");
int flitnet_open64_2(const char* path, int flags) __asm__("__open64_2");

int flitnet_open(const char* path, int flags, ...) {
  std::va_list rest;
  va_start(rest, flags);
  const auto mode = static_cast<mode_t>(va_arg(rest, unsigned));
  va_end(rest);
  static const auto real = next<int (*)(const char*, int, ...)>("open");
  return open_file(real, path, flags, mode);
}

int flitnet_open64(const char* path, int flags, ...) {
  std::va_list rest;
  va_start(rest, flags);
  const auto mode = static_cast<mode_t>(va_arg(rest, unsigned));
  va_end(rest);
  static const auto real = next<int (*)(const char*, int, ...)>("open64");
  return open_file(real, path, flags, mode);
}

ssize_t flitnet_write(int fd, const void* bytes, std::size_t count) {
  if (is_cm(fd)) return command(fd, bytes, count);
  if (const auto written = write_umad(fd, bytes, count)) return *written;
  static const auto real = next<ssize_t (*)(int, const void*, std::size_t)>("write");
  return real(fd, bytes, count);
}

int flitnet_close(int fd) {
  if (is_cm(fd)) forget(fd);
  follow_counter(-1, fd);
  static const auto real = next<int (*)(int)>("close");
  return real(fd);
}

int flitnet_close_range(unsigned first, unsigned last, int flags) {
  static const auto real = next<int (*)(unsigned, unsigned, int)>("close_range");
  if (real == nullptr) return fail_with(ENOSYS);
  const bool closes = (flags & ~static_cast<int>(CLOSE_RANGE_UNSHARE)) == 0;
  if (closes && first <= last) forget_range(first, last);
  return real(first, last, flags);
}

void flitnet_closefrom(int first) {
  static const auto real = next<void (*)(int)>("closefrom");
  if (real == nullptr) return;
  forget_range(static_cast<unsigned>(std::max(first, 0)), ~0U);
  real(first);
}

int flitnet_dup(int from) {
  static const auto real = next<int (*)(int)>("dup");
  const int to = real(from);
  return duplicated(to, from, to);
}

int flitnet_dup2(int from, int to) {
  static const auto real = next<int (*)(int, int)>("dup2");
  return duplicated(real(from, to), from, to);
}

int flitnet_dup3(int from, int to, int flags) {
  static const auto real = next<int (*)(int, int, int)>("dup3");
  return duplicated(real(from, to, flags), from, to);
}

int flitnet_fcntl(int fd, int what, ...) {
  std::va_list rest;
  va_start(rest, what);
  void* const value = va_arg(rest, void*);
  va_end(rest);
  static const auto real = next<int (*)(int, int, ...)>("fcntl");
  return controlled(real(fd, what, value), fd, what);
}

int flitnet_fcntl64(int fd, int what, ...) {
  std::va_list rest;
  va_start(rest, what);
  void* const value = va_arg(rest, void*);
  va_end(rest);
  static const auto real = next<int (*)(int, int, ...)>("fcntl64");
  return controlled(real(fd, what, value), fd, what);
}

int flitnet_fstat(int fd, struct stat* info) {
  static const auto real = next<int (*)(int, struct stat*)>("fstat");
  return looked_at(real(fd, info), fd, info);
}

int flitnet_fstat64(int fd, struct stat* info) {
  static const auto real = next<int (*)(int, struct stat*)>("fstat64");
  return looked_at(real(fd, info), fd, info);
}

int flitnet_fxstat(int version, int fd, struct stat* info) {
  static const auto real = next<int (*)(int, int, struct stat*)>("__fxstat");
  return looked_at(real(version, fd, info), fd, info);
}

int flitnet_fxstat64(int version, int fd, struct stat* info) {
  static const auto real = next<int (*)(int, int, struct stat*)>("__fxstat64");
  return looked_at(real(version, fd, info), fd, info);
}

int flitnet_open_2(const char* path, int flags) {
  static const auto real = next<int (*)(const char*, int)>("__open_2");
  const auto without_mode = [](const char* to, int how, mode_t) { return real(to, how); };
  return open_file(without_mode, path, flags, 0);
}

int flitnet_open64_2(const char* path, int flags) {
  static const auto real = next<int (*)(const char*, int)>("__open64_2");
  const auto without_mode = [](const char* to, int how, mode_t) { return real(to, how); };
  return open_file(without_mode, path, flags, 0);
}

}  // extern "C"
