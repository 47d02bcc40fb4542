// Files that hold weights: reading with every failure named, and writing so that a reader never sees half a file.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace ringfold {

// "[component] path: what: got .., expected ... Hint: .." as a DataError.
[[noreturn]] void fail_input(const std::string& component, const std::string& path, const std::string& what,
                             const std::string& got, const std::string& expected, const std::string& hint);

// A regular file opened for reading. Errors are DataErrors that begin with "[<component>] <file>: ".
class InputFile {
 public:
  InputFile(std::string component, std::string path);
  ~InputFile();
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  const std::string& path() const { return path_; }
  uint64_t size_bytes() const { return size_bytes_; }
  // Reads exactly `bytes` at `offset`; the caller has checked both against size_bytes().
  void read_at(uint64_t offset, void* out, uint64_t bytes) const;
  // fail_input() about this file.
  [[noreturn]] void fail(const std::string& what, const std::string& got, const std::string& expected,
                         const std::string& hint) const;

 private:
  std::string component_, path_;
  int descriptor_ = -1;
  uint64_t size_bytes_ = 0;
};

// Writes beside `path` and renames on commit(), after the bytes have reached the disk. Without commit() nothing is
// left behind. RunErrors name the file, the operation and the system's reason.
class OutputFile {
 public:
  OutputFile(std::string component, std::string path);
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  void write(const void* data, uint64_t bytes);
  void commit();

 private:
  [[noreturn]] void fail(const std::string& operation) const;
  std::string component_, path_, aside_;
  int descriptor_ = -1;
};

void write_text_file(const std::string& component, const std::string& path, std::string_view text);

}  // namespace ringfold
