// A folder of a test's own, which goes with it.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>

namespace test {

class FolderTest : public testing::Test {
 protected:
  FolderTest() {
    char pattern[] = "/tmp/flitnet-test-XXXXXX";
    dir_ = ::mkdtemp(pattern);
  }
  ~FolderTest() override { std::filesystem::remove_all(dir_); }
  std::string path(const std::string& name) const { return dir_ + "/" + name; }

  std::string dir_;
};

}  // namespace test
