// Says which process holds a room of the run directory, and lets a successor take over what a
// crashed one left: the file carries the pid for people and scripts, a lock on it (flock) carries
// the truth, because the kernel drops it with the process.
#pragma once

#include <sys/types.h>

#include <string>

#include "emu/base/result.h"
#include "emu/ring/fd.h"

namespace emu {

class PidFile {
 public:
  PidFile() = default;
  ~PidFile();
  PidFile(PidFile&& other) noexcept;
  PidFile& operator=(PidFile&& other) noexcept;

  // Creates or takes over `path` and writes our pid. An error names the process that holds it.
  static Result<PidFile> acquire(const std::string& path);
  // The pid of the living holder of `path`; 0 if nobody holds it.
  static pid_t holder(const std::string& path);

  const std::string& path() const { return path_; }
  void release();  // removes the file and drops the lock

 private:
  std::string path_;
  UniqueFd fd_;
};

}  // namespace emu
