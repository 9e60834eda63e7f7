// The exporter writes the counters' files once a second: too seldom for who reads one before and
// after a short run (perftest -W). So a program that opens one gets an anonymous file of its own,
// whose text is asked of hcad when it is opened and when it is read at its beginning. Its name says
// what it is, so that a descriptor that has become another file's is not taken for it.
#include "hca/verbs/counter_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "emu/metrics/port_files.h"
#include "emu/ring/unix_socket.h"
#include "hca/abi/control.h"
#include "hca/verbs/marked_fds.h"
#include "hca/verbs/next.h"
#include "hca/verbs/nodes.h"
#include "hca/verbs/not_cancelled.h"
#include "hca/verbs/redirect.h"

namespace hca {

namespace {

constexpr std::string_view kFileName = "flitnet-counter:";  // then the node's place, ':', the name
constexpr std::string_view kLinkName = "/memfd:";           // before it, in /proc/self/fd
constexpr timeval kPatience = {.tv_sec = 1, .tv_usec = 0};  // for an hcad that has stopped

// Those that were a counter's when they were opened: perhaps another file's by now. One that bears
// no mark keeps its text.
MarkedFds g_was_counter;

struct CounterName {
  std::size_t place = 0;  // among the program's nodes
  std::string file;
};

// What hcad counts now; none: it has gone, or does not keep this one.
std::optional<std::uint64_t> ask_counter(const CounterName& name) {
  const auto sockets = node_sockets();
  ControlRequest request{};
  if (name.place >= sockets.size() || name.file.size() >= sizeof request.counter.name) return {};
  request.op = ControlOp::read_counter;
  request.counter.hello = kOurHello;
  std::memcpy(request.counter.name, name.file.data(), name.file.size());
  const NotCancelled to_its_end;
  const auto socket = emu::connect_unix(sockets[name.place]);
  if (!socket || !emu::check_same_user(socket->get())) return {};
  ::setsockopt(socket->get(), SOL_SOCKET, SO_RCVTIMEO, &kPatience, sizeof kPatience);
  const auto sent = emu::send_message(socket->get(), std::as_bytes(std::span(&request, 1)));
  if (!sent || !*sent) return {};
  ControlReply reply{};
  const auto got =
      emu::receive_message(socket->get(), std::as_writable_bytes(std::span(&reply, 1)));
  const bool whole = got && got->state == emu::ReceivedMessage::State::message &&
                     got->bytes == sizeof reply && reply.op == request.op;
  if (!whole || reply.error != 0) return {};
  return reply.value;
}

// The same length or longer at each time, unless its hcad has begun anew.
bool write_text(int fd, std::uint64_t value) {
  std::array<char, 24> text;
  char* end = std::to_chars(text.begin(), text.end() - 1, value).ptr;
  *end++ = '\n';
  const auto bytes = end - text.begin();
  return ::pwrite(fd, text.data(), static_cast<std::size_t>(bytes), 0) == bytes &&
         ::ftruncate(fd, bytes) == 0;
}

// `path` once more, as this node's folder leads to it, so that no other node's is taken for it.
bool is_of_node(const std::filesystem::path& file, std::string_view node,
                std::string_view folder_name) {
  if (!folder_name.starts_with(node) || folder_name.size() <= node.size()) return false;
  const std::string_view device = folder_name.substr(node.size() + 1);
  const std::filesystem::path folder = file.parent_path();
  const auto same = std::filesystem::path(std::getenv("FLITNET_RUN")) / "sys" / "nodes" / node /
                    "class" / "infiniband" / device / "ports" / "1" / folder.filename() /
                    file.filename();
  std::error_code error;
  return std::filesystem::equivalent(file, same, error);
}

// Of every file that a program opens the name is compared, of few of them more.
bool has_counters_name(const char* path) {
  if (path == nullptr) return false;
  const char* const slash = std::strrchr(path, '/');
  const std::string_view name = slash != nullptr ? slash + 1 : path;
  return std::ranges::find(emu::kPortFiles, name, &emu::PortFile::name) != emu::kPortFiles.end();
}

// Once all links are followed a counter's path ends in NODE-DEVICE/ports/1/counters/NAME.
std::optional<CounterName> counter_at(int folder, const char* path) {
  if (!has_counters_name(path) || std::getenv("FLITNET_RUN") == nullptr) return {};
  const auto sockets = node_sockets();
  if (sockets.empty()) return {};
  std::filesystem::path from;  // where a relative path begins
  if (folder != AT_FDCWD) from = "/proc/self/fd/" + std::to_string(folder);
  PathRoom room;
  std::error_code error;
  const auto file = std::filesystem::canonical(from / redirected(path, room), error);
  if (error) return {};
  const auto port = file.parent_path().parent_path();
  const std::string folder_name = port.parent_path().parent_path().filename();
  for (std::size_t i = 0; i < sockets.size(); ++i) {
    const std::string node = std::filesystem::path(sockets[i]).parent_path().filename();
    if (is_of_node(file, node, folder_name)) return CounterName{i, file.filename()};
  }
  return {};
}

std::optional<CounterName> counter_of(int fd) {
  if (!g_was_counter.has(fd)) return {};
  std::array<char, 128> link;
  const std::string self = "/proc/self/fd/" + std::to_string(fd);
  const ssize_t length = ::readlink(self.c_str(), link.data(), link.size());
  std::string_view text(link.data(), length > 0 ? static_cast<std::size_t>(length) : 0);
  if (!text.starts_with(kLinkName) || !text.substr(kLinkName.size()).starts_with(kFileName))
    return {};
  text.remove_prefix(kLinkName.size() + kFileName.size());
  const char* const end = text.data() + text.size();
  CounterName name;
  const auto [rest, error] = std::from_chars(text.data(), end, name.place);
  if (error != std::errc{} || rest == end || *rest != ':') return {};
  text = std::string_view(rest + 1, end);
  name.file = text.substr(0, text.find(' '));  // " (deleted)"
  return name;
}

void refresh_counter(int fd) {
  const auto name = counter_of(fd);
  const auto value = name ? ask_counter(*name) : std::nullopt;
  if (value) (void)write_text(fd, *value);
}

}  // namespace

std::optional<int> open_counter_at(int folder, const char* path, int flags, mode_t) {
  constexpr int kOther = O_ACCMODE | O_DIRECTORY | O_PATH | O_CREAT | O_TRUNC;
  if ((flags & kOther) != O_RDONLY) return {};
  const auto name = counter_at(folder, path);
  if (!name) return {};
  const auto value = ask_counter(*name);
  if (!value) return {};
  const std::string own = std::string(kFileName) + std::to_string(name->place) + ":" + name->file;
  emu::UniqueFd fd(::memfd_create(own.c_str(), (flags & O_CLOEXEC) != 0 ? MFD_CLOEXEC : 0U));
  if (!fd) return -1;
  if (!write_text(fd.get(), *value)) return {};
  g_was_counter.set(fd.get(), true);
  return fd.release();
}

std::optional<int> open_counter(const char* path, int flags) {
  return open_counter_at(AT_FDCWD, path, flags);
}

// fopen() has no use for our open().
std::optional<std::FILE*> fopen_counter(const char* path, const char* mode) {
  const std::string_view how = mode != nullptr ? mode : "";
  if (!how.starts_with('r') || how.find('+') != how.npos) return {};
  const auto fd = open_counter(path, how.find('e') != how.npos ? O_CLOEXEC : 0);
  if (!fd) return {};
  std::FILE* const stream = *fd < 0 ? nullptr : ::fdopen(*fd, "r");
  if (stream == nullptr && *fd >= 0) ::close(*fd);
  return stream;
}

void before_read(int fd) {
  if (g_was_counter.has(fd) && ::lseek(fd, 0, SEEK_CUR) == 0) refresh_counter(fd);
}

void follow_counter(int from, int to) { g_was_counter.set(to, g_was_counter.has(from)); }

}  // namespace hca

using namespace hca;

#define FLITNET_PREAD(name, parameters, arguments) \
  FLITNET_IN_FRONT(ssize_t, name, parameters, arguments, if (offset == 0) refresh_counter(fd))

FLITNET_PREAD(pread, (int fd, void* bytes, std::size_t room, std::int64_t offset),
              (fd, bytes, room, offset))
FLITNET_PREAD(pread64, (int fd, void* bytes, std::size_t room, std::int64_t offset),
              (fd, bytes, room, offset))
FLITNET_PREAD(__pread_chk,
              (int fd, void* bytes, std::size_t room, std::int64_t offset, std::size_t there),
              (fd, bytes, room, offset, there))
FLITNET_PREAD(__pread64_chk,
              (int fd, void* bytes, std::size_t room, std::int64_t offset, std::size_t there),
              (fd, bytes, room, offset, there))
