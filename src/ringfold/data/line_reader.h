// Lines of a text file, plain or gzip, streamed: holds one line at a time and bounds its length.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace ringfold {

class LineReader {
 public:
  // Throws DataError that names the file when it cannot be opened.
  LineReader(std::string file, int64_t max_line_bytes);
  ~LineReader();
  LineReader(const LineReader&) = delete;
  LineReader& operator=(const LineReader&) = delete;

  // The next line without its end (\n or \r\n) and without a UTF-8 byte order mark; false at the end of the file.
  // A line above the bound is passed over: it comes back cut, with line_too_long() true. Throws DataError with file and
  // line when the file cannot be read on (damaged or truncated gzip, input/output error).
  bool next(std::string& line);
  bool line_too_long() const { return line_too_long_; }
  int64_t line_number() const { return line_number_; }  // 1-based, of the last line returned

 private:
  bool fill();

  struct Handle;
  std::string file_;
  int64_t max_line_bytes_;
  std::unique_ptr<Handle> handle_;
  std::vector<char> buffer_;
  size_t begin_ = 0, end_ = 0;  // unread bytes of the buffer
  int64_t line_number_ = 0;
  bool line_too_long_ = false;
};

}  // namespace ringfold
