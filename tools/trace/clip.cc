#include "tools/trace/clip.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>
#include <vector>

#include "tools/trace/demux.h"
#include "tools/trace/start_code.h"

namespace tools {
namespace {

// Takes coded frames one by one and keeps those that make sense together.
class ClipBuilder {
 public:
  ClipBuilder(std::string name, const ClipLimits& limits)
      : name_(std::move(name)), limits_(limits) {
    clip_.name = name_;
  }

  emu::Result<void> add(std::span<const std::uint8_t> bytes) {
    const FrameFacts facts = scan_frame(bytes);
    // A tail of stuffing or a lone sequence header or end code belongs to no picture.
    if (facts.pictures == 0) return {};
    if (auto checked = check_sequence(facts); !checked) return checked;
    if (facts.picture_code < 1 || facts.picture_code > 3) {
      return emu::fail("{}: frame {} has picture type {}, which MPEG-2 does not know", name_,
                       clip_.frames.size(), facts.picture_code);
    }
    if (clip_.frames.empty() && (!facts.sequence_header || facts.picture_code != 1)) {
      ++skipped_;  // cut in the middle of a GOP: start where a decoder could
      return {};
    }
    if (auto checked = check_frame(facts, bytes.size()); !checked) return checked;
    append(facts, bytes);
    return {};
  }

  emu::Result<Clip> finish(std::string origin) {
    if (clip_.frames.size() < limits_.frames_min) {
      return skipped_ > 0
                 ? emu::fail(
                       "{}: none of its {} pictures is an I picture after a sequence "
                       "header, nothing to start with",
                       name_, skipped_)
                 : emu::fail("{}: the MPEG-2 video stream holds no complete picture", name_);
    }
    clip_.origin = std::move(origin);
    return std::move(clip_);
  }

 private:
  emu::Result<void> check_sequence(const FrameFacts& facts) {
    if (!facts.sequence_header) return {};
    if (!facts.sequence_extension) return emu::fail("{}: MPEG-1 video, need MPEG-2", name_);
    const std::uint32_t side_max = limits_.picture_side_max;
    if (facts.width == 0 || facts.height == 0 || facts.width > side_max ||
        facts.height > side_max) {
      return emu::fail("{}: picture of {}x{} pixels, need 1 to {} a side", name_, facts.width,
                       facts.height, side_max);
    }
    if (clip_.frames.empty()) {
      clip_.width = facts.width;
      clip_.height = facts.height;
    } else if (facts.width != clip_.width || facts.height != clip_.height) {
      return emu::fail("{}: picture size changes from {}x{} to {}x{} at frame {}", name_,
                       clip_.width, clip_.height, facts.width, facts.height, clip_.frames.size());
    }
    return {};
  }

  emu::Result<void> check_frame(const FrameFacts& facts, std::size_t bytes) {
    if (bytes > limits_.frame_bytes_max) {
      return emu::fail("{}: frame {} has {} bytes, the limit is {}", name_, clip_.frames.size(),
                       bytes, limits_.frame_bytes_max);
    }
    if (clip_.frames.size() >= limits_.frames_max) {
      return emu::fail("{}: more than {} frames", name_, limits_.frames_max);
    }
    // Every macroblock row begins a slice in all profiles (6.1.2.2); up to 175 rows have a code
    // each, and picture_side_max is below that.
    const std::uint32_t rows_frame = (clip_.height + 15) / 16;
    const std::uint32_t rows = facts.field_pictures ? rows_frame / 2 : rows_frame;
    if (facts.slice_rows < rows) {
      return emu::fail("{}: frame {} has {} of its {} rows: truncated or damaged", name_,
                       clip_.frames.size(), facts.slice_rows, rows);
    }
    return {};
  }

  void append(const FrameFacts& facts, std::span<const std::uint8_t> bytes) {
    constexpr FrameType kTypes[] = {FrameType::unknown, FrameType::intra, FrameType::predicted,
                                    FrameType::bidirectional};
    clip_.frames.push_back({.index = static_cast<std::uint32_t>(clip_.frames.size()),
                            .type = kTypes[facts.picture_code],
                            .bytes = static_cast<std::uint32_t>(bytes.size()),
                            .offset = clip_.stream.size()});
    clip_.stream.insert(clip_.stream.end(), bytes.begin(), bytes.end());
  }

  std::string name_;
  ClipLimits limits_;
  Clip clip_;
  std::uint64_t skipped_ = 0;
};

struct Descriptor {
  int fd = -1;
  ~Descriptor() {
    if (fd >= 0) ::close(fd);
  }
};

}  // namespace

emu::Result<Clip> parse_clip(std::span<const std::uint8_t> file, const std::string& name,
                             const ClipLimits& limits) {
  ClipBuilder builder(name, limits);
  auto origin = demux(file, name, limits, [&builder](std::span<const std::uint8_t> frame) {
    return builder.add(frame);
  });
  if (!origin) return std::unexpected(origin.error());
  return builder.finish(*std::move(origin));
}

emu::Result<std::vector<std::uint8_t>> read_file(const std::string& path, std::uint64_t bytes_max) {
  // stat before open: opening a FIFO would block, opening a device may do anything. O_NONBLOCK and
  // the second stat cover a path that changed in between.
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return emu::fail("{}: {}", path, std::strerror(errno));
  if (!S_ISREG(status.st_mode)) return emu::fail("{}: not a regular file", path);
  const Descriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)};
  if (file.fd < 0) return emu::fail("{}: {}", path, std::strerror(errno));
  if (::fstat(file.fd, &status) != 0 || !S_ISREG(status.st_mode)) {
    return emu::fail("{}: not a regular file", path);
  }
  if (status.st_size == 0) return emu::fail("{}: empty file", path);
  if (static_cast<std::uint64_t>(status.st_size) > bytes_max) {
    return emu::fail("{}: {} bytes, the limit is {}", path, status.st_size, bytes_max);
  }
  std::vector<std::uint8_t> bytes(static_cast<std::size_t>(status.st_size));
  std::size_t have = 0;
  while (have < bytes.size()) {
    const ssize_t got = ::read(file.fd, bytes.data() + have, bytes.size() - have);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return emu::fail("{}: {}", path, std::strerror(errno));
    if (got == 0) break;  // shortened meanwhile
    have += static_cast<std::size_t>(got);
  }
  bytes.resize(have);
  return bytes;
}

emu::Result<Clip> read_clip(const std::string& path, const ClipLimits& limits) {
  auto bytes = read_file(path, limits.file_bytes_max);
  if (!bytes) return std::unexpected(bytes.error());
  return parse_clip(*bytes, std::filesystem::path(path).filename().string(), limits);
}

}  // namespace tools
