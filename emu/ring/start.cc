#include "emu/ring/start.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <vector>

#include "emu/ring/fd.h"

namespace emu {

namespace {
constexpr unsigned long kTimerSlackNs = 1000;
std::atomic<bool> g_stop{false};  // the only thing a signal handler may touch

// Keys lie in there. Where /tmp is everybody's, a stranger may have been faster.
Result<void> keep_to_ourselves(const std::string& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  struct stat status {};
  if (!fd || ::fstat(fd.get(), &status) != 0)
    return fail("directory {}: {}", path, std::strerror(errno));
  if (status.st_uid != ::geteuid())
    return fail("directory {}: belongs to user {}: name another by --run", path, status.st_uid);
  if (::fchmod(fd.get(), 0700) != 0) return fail("directory {}: {}", path, std::strerror(errno));
  return {};
}

}  // namespace

const std::atomic<bool>& prepare_process() {
  struct sigaction action {};
  action.sa_handler = [](int) { g_stop.store(true); };
  ::sigaction(SIGTERM, &action, nullptr);
  ::sigaction(SIGINT, &action, nullptr);
  ::signal(SIGPIPE, SIG_IGN);
  ::prctl(PR_SET_TIMERSLACK, kTimerSlackNs);
  return g_stop;
}

void raise_descriptor_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  (void)::setrlimit(RLIMIT_NOFILE, &limit);
}

Result<void> make_run_directories(const std::string& run_dir, std::span<const std::string> more) {
  std::vector<std::string> paths = {run_dir, run_dir + "/log", run_dir + "/metrics",
                                    run_dir + "/nodes"};
  for (const std::string& name : more) paths.push_back(run_dir + "/" + name);
  for (const std::string& path : paths) {
    std::error_code error;
    std::filesystem::create_directories(path, error);
    if (error) return fail("directory {}: {}", path, error.message());
    if (auto done = keep_to_ourselves(path); !done) return done;
  }
  return {};
}

}  // namespace emu
