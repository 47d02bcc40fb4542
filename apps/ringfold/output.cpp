#include "output.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>

namespace ringfold {

void write_stdout(const std::string& text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0) {
    throw RunError(fmt::format("[output] cannot write to stdout: {}", std::strerror(errno)));
  }
}

void write_file(const std::string& file, const std::string& text) {
  std::ofstream out(file, std::ios::binary);
  out << text;
  if (!out.flush()) throw RunError(fmt::format("[output] cannot write {}. Hint: check the folder and the disk", file));
}

int print_error(const Error& error) {
  const std::string line = fmt::format("ringfold: error: {}\n", error.what());
  std::fwrite(line.data(), 1, line.size(), stderr);
  return static_cast<int>(error.exit_code());
}

}  // namespace ringfold
