#include "ringfold/models/common/file_io.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "ringfold/base/error.h"

namespace ringfold {

// read(2) and write(2) move at most about 2 GiB a call.
constexpr uint64_t kMaxCallBytes = uint64_t{1} << 30;

void fail_input(const std::string& component, const std::string& path, const std::string& what, const std::string& got,
                const std::string& expected, const std::string& hint) {
  throw DataError(
      fmt::format("[{}] {}: {}: got {}, expected {}. Hint: {}", component, path, what, got, expected, hint));
}

InputFile::InputFile(std::string component, std::string path)
    : component_(std::move(component)), path_(std::move(path)) {
  descriptor_ = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor_ < 0) fail("open", std::strerror(errno), "a readable file", "check the path and its permissions");
  struct stat info {};
  if (::fstat(descriptor_, &info) != 0 || !S_ISREG(info.st_mode)) {
    ::close(descriptor_);
    fail("open", "something that is not a regular file", "a file", "check the path");
  }
  size_bytes_ = static_cast<uint64_t>(info.st_size);
}

InputFile::~InputFile() {
  ::close(descriptor_);
}

void InputFile::read_at(uint64_t offset, void* out, uint64_t bytes) const {
  auto* to = static_cast<char*>(out);
  while (bytes > 0) {
    const ssize_t got = ::pread(descriptor_, to, std::min(bytes, kMaxCallBytes), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) {
      fail("read", got < 0 ? std::strerror(errno) : "the end of the file", fmt::format("{} more bytes", bytes),
           "the file changed while it was read, or the disk failed");
    }
    to += got;
    offset += static_cast<uint64_t>(got);
    bytes -= static_cast<uint64_t>(got);
  }
}

void InputFile::fail(const std::string& what, const std::string& got, const std::string& expected,
                     const std::string& hint) const {
  fail_input(component_, path_, what, got, expected, hint);
}

OutputFile::OutputFile(std::string component, std::string path)
    : component_(std::move(component)), path_(std::move(path)), aside_(fmt::format("{}.tmp-{}", path_, ::getpid())) {
  descriptor_ = ::open(aside_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (descriptor_ < 0) fail("create");
}

OutputFile::~OutputFile() {
  if (descriptor_ < 0) return;
  ::close(descriptor_);
  ::unlink(aside_.c_str());
}

void OutputFile::write(const void* data, uint64_t bytes) {
  const auto* from = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t done = ::write(descriptor_, from, std::min(bytes, kMaxCallBytes));
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) fail("write");
    from += done;
    bytes -= static_cast<uint64_t>(done);
  }
}

void OutputFile::commit() {
  if (::fsync(descriptor_) != 0) fail("fsync");
  if (::rename(aside_.c_str(), path_.c_str()) != 0) fail("rename");
  ::close(descriptor_);
  descriptor_ = -1;
  // The rename itself is durable only once the folder is on the disk.
  const std::string folder = std::filesystem::path(path_).parent_path().string();
  const int handle = ::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (handle < 0) fail("open the folder");
  const int result = ::fsync(handle);
  ::close(handle);
  if (result != 0) fail("fsync the folder");
}

void OutputFile::fail(const std::string& operation) const {
  throw RunError(
      fmt::format("[{}] {}: {}: got {}, expected success. Hint: check the free space and the permissions of its folder",
                  component_, path_, operation, std::strerror(errno)));
}

void write_text_file(const std::string& component, const std::string& path, std::string_view text) {
  OutputFile out(component, path);
  out.write(text.data(), text.size());
  out.commit();
}

}  // namespace ringfold
