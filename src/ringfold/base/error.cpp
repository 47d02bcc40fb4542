#include "ringfold/base/error.h"

#include <cstdio>
#include <cstdlib>

namespace ringfold {
namespace {

std::string on_one_line(std::string message) {
  for (char& c : message) {
    if (c == '\n' || c == '\r' || c == '\t') {
      c = ' ';
    } else if (static_cast<unsigned char>(c) < ' ' || c == 0x7F) {
      c = '?';
    }
  }
  return message;
}

}  // namespace

Error::Error(ExitCode code, std::string message) : std::runtime_error(on_one_line(std::move(message))), code_(code) {}

void assertion_failed(const char* condition, const char* file, int line, const std::string& message) {
  std::fprintf(stderr, "ringfold: internal error at %s:%d: %s (%s). Please report this.\n", file, line, message.c_str(),
               condition);
  std::abort();
}

}  // namespace ringfold
