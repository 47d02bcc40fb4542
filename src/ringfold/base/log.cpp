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

}  // namespace

void set_level(Level level) {
  switch (level) {
    case Level::kDebug:
      logger().set_level(spdlog::level::debug);
      break;
    case Level::kInfo:
      logger().set_level(spdlog::level::info);
      break;
    case Level::kWarning:
      logger().set_level(spdlog::level::warn);
      break;
    case Level::kError:
      logger().set_level(spdlog::level::err);
      break;
    case Level::kOff:
      logger().set_level(spdlog::level::off);
      break;
  }
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
