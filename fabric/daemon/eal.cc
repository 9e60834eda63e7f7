#include "fabric/daemon/eal.h"

#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_log.h>
#include <sched.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <vector>

namespace fabric {

namespace {

// "0@(2,3,7)": lcore 0 on whichever of these cores the kernel likes.
emu::Result<std::string> floating_lcore() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (::sched_getaffinity(0, sizeof allowed, &allowed) != 0) {
    return emu::fail("sched_getaffinity: {}", std::strerror(errno));
  }
  std::string cores;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &allowed)) cores += fmt::format("{}{}", cores.empty() ? "" : ",", cpu);
  }
  return fmt::format("0@({})", cores);
}

}  // namespace

emu::Result<void> start_eal(const EalOptions& options) {
  auto lcore = floating_lcore();
  if (!lcore) return std::unexpected(lcore.error());
  const char* log_path = options.log_path.empty() ? "/dev/null" : options.log_path.c_str();
  std::FILE* log = std::fopen(log_path, "ae");
  if (log == nullptr) {
    return emu::fail("log file {}: {}", options.log_path, std::strerror(errno));
  }
  std::setvbuf(log, nullptr, _IOLBF, 0);
  rte_openlog_stream(log);

  // Where EAL wants a directory although it shares nothing; it and its contents go right after.
  const std::string scratch = options.run_dir + "/eal." + std::to_string(::getpid());
  std::filesystem::create_directory(scratch);
  ::setenv("RUNTIME_DIRECTORY", scratch.c_str(), 1);

  std::vector<std::string> words = {"fabricd",
                                    "--no-huge",
                                    "--no-shconf",
                                    "--no-pci",
                                    "--no-telemetry",
                                    "--no-hpet",
                                    "-m",
                                    std::to_string(options.memory_mb),
                                    "--file-prefix",
                                    "flitnet" + std::to_string(::getpid()),
                                    "--lcores",
                                    *lcore,
                                    "--log-level",
                                    "warning"};
  std::vector<char*> arguments;
  for (auto& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);  // EAL's getopt permutes, so it must not be const
  const int count = static_cast<int>(words.size());
  const int done = rte_eal_init(count, arguments.data());
  std::error_code ignored;
  std::filesystem::remove_all(scratch, ignored);
  ::unsetenv("RUNTIME_DIRECTORY");
  if (done < 0) {
    return emu::fail("DPDK does not start ({}): see {}", rte_strerror(rte_errno),
                     options.log_path.empty() ? "its log" : options.log_path);
  }
  return {};
}

void stop_eal() { rte_eal_cleanup(); }

}  // namespace fabric
