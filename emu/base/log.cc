#include "emu/base/log.h"

#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/spdlog.h>

#include <memory>

namespace emu {

namespace {
std::shared_ptr<spdlog::logger>& logger() {
  static std::shared_ptr<spdlog::logger> instance;
  return instance;
}
void write(spdlog::level::level_enum level, std::string_view line) {
  if (logger() != nullptr) logger()->log(level, spdlog::string_view_t(line.data(), line.size()));
}
}  // namespace

Result<void> open_log(const std::string& path, const std::string& process) {
  try {
    logger() = spdlog::basic_logger_st(process, path);
  } catch (const spdlog::spdlog_ex& error) {
    return fail("log file {}: {}", path, error.what());
  }
  logger()->set_pattern("%Y-%m-%d %H:%M:%S.%e %n[%P] %l: %v");
  logger()->flush_on(spdlog::level::info);
  return {};
}

void log_info(std::string_view line) { write(spdlog::level::info, line); }
void log_warning(std::string_view line) { write(spdlog::level::warn, line); }
void log_error(std::string_view line) { write(spdlog::level::err, line); }

}  // namespace emu
