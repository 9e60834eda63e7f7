// Meeting at a path, messages with descriptors, and what a crashed owner leaves behind.
#include "emu/ring/unix_socket.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <vector>

#include "emu/ring/region.h"
#include "tests/unit/emu/ring/folder.h"

namespace {

using emu::ReceivedMessage;
using emu::UniqueFd;

class UnixSocket : public test::FolderTest {};

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

UniqueFd accept_soon(int listener) {
  EXPECT_TRUE(*emu::wait_readable(listener, 5000));
  return *emu::accept_unix(listener);
}

TEST_F(UnixSocket, CarriesMessagesAndDescriptors) {
  UniqueFd listener = *emu::listen_unix(path("a.sock"));
  EXPECT_FALSE(*emu::accept_unix(listener.get()));  // nobody waits
  UniqueFd client = *emu::connect_unix(path("a.sock"));
  UniqueFd server = accept_soon(listener.get());
  const auto peer = *emu::peer_of(server.get());
  EXPECT_EQ(peer.pid, getpid());
  EXPECT_EQ(peer.uid, geteuid());

  emu::Region region = *emu::Region::create("passed", 4096);
  region.data()[0] = std::byte{77};
  const int fds[] = {region.fd()};
  ASSERT_TRUE(*emu::send_message(client.get(), bytes_of("hello"), fds));
  std::vector<std::byte> buffer(100);
  ReceivedMessage message = *emu::receive_message(server.get(), buffer);
  ASSERT_EQ(message.state, ReceivedMessage::State::message);
  EXPECT_EQ(message.bytes, 5u);
  ASSERT_EQ(message.fd_count, 1u);
  auto mapped = emu::Region::map(message.fds[0].take(), 4096, emu::Access::read_only);
  EXPECT_EQ(mapped->data()[0], std::byte{77});

  EXPECT_EQ(emu::receive_message(server.get(), buffer)->state, ReceivedMessage::State::nothing_yet);
  client.reset();
  EXPECT_EQ(emu::receive_message(server.get(), buffer)->state, ReceivedMessage::State::closed);
}

TEST_F(UnixSocket, OverlongMessageIsAnErrorAndTheNextIsWhole) {
  UniqueFd listener = *emu::listen_unix(path("a.sock"));
  UniqueFd client = *emu::connect_unix(path("a.sock"));
  UniqueFd server = accept_soon(listener.get());
  ASSERT_TRUE(*emu::send_message(client.get(), bytes_of(std::string(200, 'x'))));
  ASSERT_TRUE(*emu::send_message(client.get(), bytes_of("short")));
  std::vector<std::byte> buffer(100);
  EXPECT_FALSE(emu::receive_message(server.get(), buffer));
  EXPECT_EQ(emu::receive_message(server.get(), buffer)->bytes, 5u);
}

// Descriptors beyond the limit are closed, not leaked.
TEST_F(UnixSocket, TooManyDescriptorsAreRefusedAndClosed) {
  int pair[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, pair), 0);
  UniqueFd a(pair[0]);
  UniqueFd b(pair[1]);
  std::vector<int> fds(40, a.get());
  char byte = 'x';
  iovec piece{&byte, 1};
  std::vector<char> control(CMSG_SPACE(fds.size() * sizeof(int)));
  msghdr header{};
  header.msg_iov = &piece;
  header.msg_iovlen = 1;
  header.msg_control = control.data();
  header.msg_controllen = control.size();
  cmsghdr* c = CMSG_FIRSTHDR(&header);
  c->cmsg_level = SOL_SOCKET;
  c->cmsg_type = SCM_RIGHTS;
  c->cmsg_len = CMSG_LEN(fds.size() * sizeof(int));
  std::memcpy(CMSG_DATA(c), fds.data(), fds.size() * sizeof(int));
  ASSERT_EQ(sendmsg(a.get(), &header, 0), 1);
  const int lowest_free_before = dup(a.get());
  close(lowest_free_before);
  std::vector<std::byte> buffer(100);
  EXPECT_FALSE(emu::receive_message(b.get(), buffer));
  const int lowest_free_after = dup(a.get());
  close(lowest_free_after);
  EXPECT_EQ(lowest_free_after, lowest_free_before);
}

// At the limit of this process: the bytes come, the loss is said, nothing is kept.
TEST_F(UnixSocket, DescriptorsThatFindNoRoomAreToldAsLost) {
  int pair[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, pair), 0);
  UniqueFd a(pair[0]);
  UniqueFd b(pair[1]);
  const std::vector<int> fds(3, a.get());
  ASSERT_TRUE(*emu::send_message(a.get(), bytes_of("three"), fds));
  ASSERT_TRUE(*emu::send_message(a.get(), bytes_of("again"), fds));
  const int lowest_free = dup(a.get());
  close(lowest_free);
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit few{static_cast<rlim_t>(lowest_free) + 2, before.rlim_max};  // room for two
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  std::vector<std::byte> buffer(100);
  const auto lost = emu::receive_message(b.get(), buffer);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  ASSERT_TRUE(lost);
  EXPECT_TRUE(lost->fds_lost);
  EXPECT_EQ(lost->state, ReceivedMessage::State::message);
  EXPECT_EQ(lost->bytes, 5u);
  EXPECT_EQ(lost->fd_count, 0u);
  const int after = dup(a.get());
  close(after);
  EXPECT_EQ(after, lowest_free);
  const auto whole = emu::receive_message(b.get(), buffer);
  EXPECT_FALSE(whole->fds_lost);
  EXPECT_EQ(whole->fd_count, 3u);
}

TEST_F(UnixSocket, FullSocketSaysSo) {
  int pair[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, pair), 0);
  UniqueFd a(pair[0]);
  UniqueFd b(pair[1]);
  const std::string text(10'000, 'x');
  int sent = 0;
  while (*emu::send_message(a.get(), bytes_of(text))) ASSERT_LT(++sent, 10'000);
  EXPECT_GT(sent, 0);
  b.reset();
  EXPECT_FALSE(emu::send_message(a.get(), bytes_of(text)));  // and no SIGPIPE
}

// One message less, the next one passes.
TEST_F(UnixSocket, ADescriptorThatIsNotOpen) {
  int pair[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair), 0);
  UniqueFd a(pair[0]);
  UniqueFd b(pair[1]);
  const int closed = dup(a.get());
  close(closed);
  errno = 0;
  EXPECT_FALSE(emu::send_message(a.get(), bytes_of("none"), std::span(&closed, 1)));
  EXPECT_EQ(errno, EBADF);
  EXPECT_TRUE(emu::send_message(a.get(), bytes_of("next")));
  std::array<std::byte, 64> buffer;
  EXPECT_EQ(emu::receive_message(b.get(), buffer)->bytes, 4u);
  b.reset();
  EXPECT_FALSE(emu::send_message(a.get(), bytes_of("nobody")));
  EXPECT_EQ(errno, EPIPE);
}

TEST_F(UnixSocket, StaleSocketIsTakenOverALiveOneIsNot) {
  { UniqueFd dead = *emu::listen_unix(path("a.sock")); }
  ASSERT_TRUE(std::filesystem::exists(path("a.sock")));
  const auto nobody = emu::connect_unix(path("a.sock"));
  ASSERT_FALSE(nobody);
  EXPECT_NE(nobody.error().message.find("nobody listens"), std::string::npos);
  UniqueFd alive = *emu::listen_unix(path("a.sock"));
  const auto second = emu::listen_unix(path("a.sock"));
  ASSERT_FALSE(second);
  EXPECT_NE(second.error().message.find("in use"), std::string::npos);
  const auto missing = emu::connect_unix(path("b.sock"));
  ASSERT_FALSE(missing);
  EXPECT_NE(missing.error().message.find("does not exist"), std::string::npos);
}

TEST_F(UnixSocket, AFileInTheWayIsNotRemoved) {
  std::ofstream(path("a.sock")) << "precious";
  EXPECT_FALSE(emu::listen_unix(path("a.sock")));
  EXPECT_TRUE(std::filesystem::exists(path("a.sock")));
}

TEST_F(UnixSocket, PathMayBeLongerThanAnAddress) {
  const std::string deep = path(std::string(120, 'd'));
  std::filesystem::create_directory(deep);
  UniqueFd listener = *emu::listen_unix(deep + "/a.sock");
  UniqueFd client = *emu::connect_unix(deep + "/a.sock");
  EXPECT_TRUE(accept_soon(listener.get()));
  listener.reset();
  EXPECT_TRUE(emu::listen_unix(deep + "/a.sock"));  // stale, taken over
}

}  // namespace
