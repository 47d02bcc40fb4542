// Logging facade: one line a message to stderr, spdlog behind it. Messages are built by the caller.
#pragma once

#include <string_view>

namespace ringfold::log {

enum class Level { kDebug, kInfo, kWarning, kError, kOff };

void set_level(Level level);
// Whether messages of this level are shown.
bool shows(Level level);
void debug(std::string_view message);
void info(std::string_view message);
void warning(std::string_view message);

}  // namespace ringfold::log
