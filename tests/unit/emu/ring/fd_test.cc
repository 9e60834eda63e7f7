// What another process handed over closes without holding up who closes it.
#include "emu/ring/fd.h"

#include <fcntl.h>
#include <linux/fuse.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fstream>
#include <string>
#include <utility>

#include "tests/unit/emu/ring/folder.h"

namespace {

using emu::ForeignFd;
using emu::UniqueFd;

class ForeignFdTest : public test::FolderTest {};

struct Pipe {
  Pipe() {
    std::array<int, 2> ends{};
    EXPECT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0);
    read = UniqueFd(ends[0]);
    write = UniqueFd(ends[1]);
  }
  UniqueFd read;
  UniqueFd write;
};

// The daemon of a file system that is one file. A close of the file it answers when `go` says so.
[[noreturn]] void serve_file(int fuse, int go) {
  ::alarm(20);  // whoever waits for us by mistake goes on then
  alignas(fuse_in_header) std::array<char, 1 << 17> request;
  while (::read(fuse, request.data(), request.size()) > 0) {
    const auto& in = *reinterpret_cast<const fuse_in_header*>(request.data());
    struct {
      fuse_out_header header{};
      std::array<char, 64> rest{};
    } out;
    std::size_t bytes = 0;
    if (in.opcode == FUSE_INIT) {
      fuse_init_out init{};
      init.major = FUSE_KERNEL_VERSION;
      init.minor = FUSE_KERNEL_MINOR_VERSION;
      init.max_write = 4096;
      std::memcpy(out.rest.data(), &init, bytes = sizeof init);
    } else if (in.opcode == FUSE_OPEN) {
      bytes = sizeof(fuse_open_out);
    } else if (in.opcode == FUSE_FLUSH) {
      char byte = 0;
      if (::read(go, &byte, 1) != 1) ::_exit(2);
    } else {
      out.header.error = -ENOSYS;
    }
    out.header.unique = in.unique;
    out.header.len = static_cast<std::uint32_t>(sizeof out.header + bytes);
    (void)!::write(fuse, &out, out.header.len);
    if (in.opcode == FUSE_FLUSH) ::_exit(0);
  }
  ::_exit(1);
}

TEST_F(ForeignFdTest, OfAFileSystemThatDoesNotAnswerHoldsNobodyUp) {
  const std::string file = path("file");
  std::ofstream(file).flush();
  UniqueFd fuse(::open("/dev/fuse", O_RDWR | O_CLOEXEC));
  const std::string options =
      "fd=" + std::to_string(fuse.get()) + ",rootmode=100600,user_id=0,group_id=0";
  // The mount is this thread's alone, and goes with it.
  if (!fuse || ::unshare(CLONE_NEWNS) != 0 ||
      ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
      ::mount("test", file.c_str(), "fuse", 0, options.c_str()) != 0) {
    GTEST_SKIP() << "a file system of its own needs root and /dev/fuse: " << std::strerror(errno);
  }
  Pipe go;
  const pid_t daemon = ::fork();
  if (daemon == 0) serve_file(fuse.get(), go.read.get());
  fuse.reset();
  ForeignFd opened{UniqueFd(::open(file.c_str(), O_RDONLY | O_CLOEXEC))};
  ASSERT_TRUE(opened);
  opened.reset();
  EXPECT_FALSE(opened);
  std::signal(SIGPIPE, SIG_IGN);
  EXPECT_EQ(::write(go.write.get(), "g", 1), 1);
  int status = 0;
  EXPECT_EQ(::waitpid(daemon, &status, 0), daemon);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "the close waited: " << status;
  ::umount2(file.c_str(), MNT_DETACH);
}

TEST_F(ForeignFdTest, OfAPipeIsClosedWhenResetReturns) {
  Pipe pipe;
  ForeignFd foreign(std::move(pipe.write));
  foreign.reset();
  char byte = 0;
  EXPECT_EQ(::read(pipe.read.get(), &byte, 1), 0);
}

}  // namespace
