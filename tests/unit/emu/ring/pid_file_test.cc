// Who holds a room of the run directory, and who may take it over.
#include "emu/ring/pid_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>

#include "tests/unit/emu/ring/folder.h"

namespace {

using emu::PidFile;

class PidFileTest : public test::FolderTest {};

char state_of(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  return text[text.rfind(')') + 2];
}

TEST_F(PidFileTest, KnowsItsHolder) {
  PidFile file = *PidFile::acquire(path("x.pid"));
  EXPECT_EQ(PidFile::holder(path("x.pid")), getpid());
  const auto second = PidFile::acquire(path("x.pid"));
  ASSERT_FALSE(second);
  EXPECT_NE(second.error().message.find(std::to_string(getpid())), std::string::npos);
  PidFile moved = std::move(file);
  EXPECT_EQ(PidFile::holder(path("x.pid")), getpid());
  moved.release();
  EXPECT_FALSE(std::filesystem::exists(path("x.pid")));
  EXPECT_EQ(PidFile::holder(path("x.pid")), 0);
}

TEST_F(PidFileTest, OfACrashedProcessIsTakenOver) {
  const pid_t child = fork();
  if (child == 0) {
    auto held = PidFile::acquire(path("x.pid"));
    if (held) kill(getpid(), SIGKILL);
    _exit(1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  EXPECT_TRUE(std::filesystem::exists(path("x.pid")));
  EXPECT_EQ(PidFile::holder(path("x.pid")), 0);
  auto taken = PidFile::acquire(path("x.pid"));
  ASSERT_TRUE(taken);
  EXPECT_EQ(PidFile::holder(path("x.pid")), getpid());
}

// As one that was killed while its threads wait for a core: it is a zombie, its lock goes with the
// last thread.
TEST_F(PidFileTest, WhoIsDyingIsWaitedFor) {
  int go[2];
  ASSERT_EQ(pipe2(go, O_CLOEXEC), 0);
  const pid_t child = fork();
  if (child == 0) {
    auto held = PidFile::acquire(path("x.pid"));
    if (!held) _exit(1);
    std::thread([&go] {
      char byte = 0;
      _exit(read(go[0], &byte, 1) == 1 ? 0 : 1);
    }).detach();
    syscall(SYS_exit, 0);  // this thread alone, and nothing is unwound
  }
  while (state_of(child) != 'Z') usleep(1000);
  std::thread last([&go] {
    usleep(200'000);
    EXPECT_EQ(write(go[1], "x", 1), 1);
  });
  const auto taken = PidFile::acquire(path("x.pid"));
  EXPECT_TRUE(taken) << taken.error().message;
  last.join();
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(PidFile::holder(path("x.pid")), getpid());
  close(go[0]);
  close(go[1]);
}

}  // namespace
