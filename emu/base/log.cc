#include "emu/base/log.h"

#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/spdlog.h>

#include <atomic>
#include <memory>
#include <utility>
#include <vector>

namespace emu {

namespace {
struct Logs {
  std::vector<std::shared_ptr<spdlog::logger>> all;
  std::atomic<Log> current{0};  // a watch (hca/daemon/copy_watch.h) may ask
};
Logs& logs() {
  static Logs instance;
  return instance;
}
void write(spdlog::level::level_enum level, std::string_view line) {
  const Logs& known = logs();
  if (known.all.empty()) return;
  known.all[known.current]->log(level, spdlog::string_view_t(line.data(), line.size()));
}
}  // namespace

Result<void> open_log(const std::string& path, const std::string& process) {
  try {
    auto sink = std::make_shared<spdlog::sinks::basic_file_sink_st>(path);
    logs().all.push_back(std::make_shared<spdlog::logger>(process, std::move(sink)));
  } catch (const spdlog::spdlog_ex& error) {
    return fail("log file {}: {}", path, error.what());
  }
  logs().current = logs().all.size() - 1;
  spdlog::logger& opened = *logs().all.back();
  opened.set_pattern("%Y-%m-%d %H:%M:%S.%e %n[%P] %l: %v");
  opened.flush_on(spdlog::level::info);
  return {};
}

Log current_log() { return logs().current; }
void log_to(Log log) { logs().current = log; }

void log_info(std::string_view line) { write(spdlog::level::info, line); }
void log_warning(std::string_view line) { write(spdlog::level::warn, line); }
void log_error(std::string_view line) { write(spdlog::level::err, line); }

}  // namespace emu
