// Where the tests of clips find files: the shipped clips always, the developers' set if it is
// there.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

namespace tools {

inline std::filesystem::path source_root() {
  const char* root = std::getenv("FLITNET_SOURCE_ROOT");
  return root != nullptr ? root : ".";
}
inline std::filesystem::path clips() { return source_root() / "traces"; }
inline std::filesystem::path shared_video() { return source_root() / ".." / "shared" / "video"; }

inline std::vector<std::uint8_t> bytes_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}
inline std::string text_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// A folder of its own for a test, gone afterwards.
class TempFolder {
 public:
  TempFolder() {
    std::string pattern = testing::TempDir() + "/flitnetXXXXXX";
    if (::mkdtemp(pattern.data()) != nullptr) path_ = pattern;
  }
  ~TempFolder() { std::filesystem::remove_all(path_); }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;
  std::string file(std::string_view name, std::string_view content) const {
    const auto path = path_ / name;
    std::ofstream(path, std::ios::binary) << content;
    return path;
  }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace tools
