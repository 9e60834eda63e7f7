// Where a daemon lives: folders for its user alone.
#include "emu/ring/start.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

namespace emu {
namespace {

class RunDirectories : public testing::Test {
 protected:
  void SetUp() override {
    path_ = testing::TempDir() + "flitnet-run-XXXXXX";
    ASSERT_NE(::mkdtemp(path_.data()), nullptr);
  }
  void TearDown() override { std::filesystem::remove_all(path_); }
  std::string path_;
};

TEST_F(RunDirectories, AreForUsAlone) {
  ASSERT_EQ(::chmod(path_.c_str(), 0777), 0);
  const std::string more = "nodes/n0";
  ASSERT_TRUE(make_run_directories(path_, {&more, 1}));
  for (const char* name : {"", "/log", "/metrics", "/nodes", "/nodes/n0"}) {
    struct stat status {};
    ASSERT_EQ(::stat((path_ + name).c_str(), &status), 0) << name;
    EXPECT_EQ(status.st_mode & 07777, 0700U) << name;
  }
}

// Whoever made it first reads the cluster's key in it.
TEST_F(RunDirectories, AStrangersIsRefused) {
  const bool root = ::geteuid() == 0;
  const std::string strangers = root ? path_ : "/";
  ASSERT_TRUE(!root || ::chown(path_.c_str(), 1, 1) == 0);
  const auto done = make_run_directories(strangers, {});
  ASSERT_FALSE(done);
  EXPECT_NE(done.error().message.find("belongs to user"), std::string::npos)
      << done.error().message;
  EXPECT_FALSE(std::filesystem::exists(path_ + "/log"));
}

}  // namespace
}  // namespace emu
