#include "ringfold/base/log.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

namespace ringfold::log {
namespace {

spdlog::logger& logger() {
  static const std::shared_ptr<spdlog::logger> instance = [] {
    auto made = spdlog::stderr_logger_mt("ringfold");
    made->set_pattern("%v");
    made->flush_on(spdlog::level::debug);
    return made;
  }();
  return *instance;
}

spdlog::level::level_enum spdlog_level(Level level) {
  switch (level) {
    case Level::kDebug:
      return spdlog::level::debug;
    case Level::kInfo:
      return spdlog::level::info;
    case Level::kWarning:
      return spdlog::level::warn;
    case Level::kError:
      return spdlog::level::err;
    case Level::kOff:
      break;
  }
  return spdlog::level::off;
}

}  // namespace

void set_level(Level level) {
  logger().set_level(spdlog_level(level));
}

bool shows(Level level) {
  return logger().should_log(spdlog_level(level));
}

void debug(std::string_view message) {
  logger().debug("ringfold: {}", message);
}
void info(std::string_view message) {
  logger().info("{}", message);
}
void warning(std::string_view message) {
  logger().warn("ringfold: warning: {}", message);
}

}  // namespace ringfold::log
