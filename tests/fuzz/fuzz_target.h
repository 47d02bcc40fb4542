// One fuzz target a file: fuzz_<name>.cpp defines LLVMFuzzerTestOneInput. Built with libFuzzer (RINGFOLD_FUZZ) it
// explores; built with replay_main.cpp it runs the committed inputs of corpus/<name> in every test run.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "ringfold/base/error.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace ringfold::fuzz {

inline void require(bool condition, const char* what, std::string_view shown = "") {
  if (condition) return;
  std::fprintf(stderr, "fuzz: %s: %.*s\n", what, static_cast<int>(shown.size()), shown.data());
  std::abort();
}

// What every reader of outside bytes promises: it takes them, or throws an Error that ends in exit code 2 with one
// readable line: a component in front, no control characters, no page of the file.
template <typename Read>
void expect_value_or_message(Read&& read) {
  constexpr size_t kLongestMessage = 2000;
  try {
    read();
  } catch (const Error& error) {
    const std::string_view message = error.what();
    require(error.exit_code() == ExitCode::kUsage, "not exit code 2", message);
    require(message.starts_with('['), "no component", message);
    require(message.size() <= kLongestMessage, "a message too long to read", message);
    for (const char c : message)
      require(static_cast<unsigned char>(c) >= ' ' && c != 0x7F, "control character", message);
  }
}

// A file that lives in memory, for readers that take a path.
class MemoryFile {
 public:
  MemoryFile(const uint8_t* data, size_t size) : descriptor_(memfd_create("fuzz", 0)) {
    require(descriptor_ >= 0 && write(descriptor_, data, size) == static_cast<ssize_t>(size), "no memory file");
    path_ = "/proc/self/fd/" + std::to_string(descriptor_);
  }
  ~MemoryFile() { close(descriptor_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  const std::string& path() const { return path_; }

 private:
  int descriptor_;
  std::string path_;
};

inline std::string_view as_text(const uint8_t* data, size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

}  // namespace ringfold::fuzz
