#include "ringfold/data/line_reader.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "ringfold/base/error.h"

namespace ringfold {
namespace {

constexpr size_t kBufferBytes = 1 << 18;

std::string reason_of(gzFile file) {
  int code = Z_OK;
  const char* text = gzerror(file, &code);
  if (code == Z_ERRNO) return std::strerror(errno);
  if (code == Z_BUF_ERROR) return "the gzip data end too early";
  if (code == Z_DATA_ERROR) return "the gzip data are damaged";
  return text;
}

}  // namespace

struct LineReader::Handle {
  gzFile file = nullptr;  // zlib reads plain files through the same calls
  ~Handle() {
    if (file) gzclose(file);
  }
};

LineReader::LineReader(std::string file, int64_t max_line_bytes)
    : file_(std::move(file)), max_line_bytes_(max_line_bytes), handle_(std::make_unique<Handle>()) {
  buffer_.resize(kBufferBytes);
  errno = 0;
  handle_->file = gzopen(file_.c_str(), "rb");
  if (!handle_->file) {
    throw DataError(fmt::format("[data] {}: cannot open: {}. Hint: check the path and its permissions", file_,
                                errno ? std::strerror(errno) : "out of memory"));
  }
  gzbuffer(handle_->file, kBufferBytes);
}

LineReader::~LineReader() = default;

bool LineReader::fill() {
  errno = 0;
  const int count = gzread(handle_->file, buffer_.data(), static_cast<unsigned>(buffer_.size()));
  int code = Z_OK;
  gzerror(handle_->file, &code);
  // A truncated gzip file is reported only after its last whole bytes, with a short count.
  if (count < 0 || (code != Z_OK && code != Z_STREAM_END)) {
    throw DataError(fmt::format("[data] {}:{}: cannot read on: {}. Hint: copy or compress the file again", file_,
                                line_number_ + 1, reason_of(handle_->file)));
  }
  begin_ = 0;
  end_ = static_cast<size_t>(count);
  return count > 0;
}

bool LineReader::next(std::string& line) {
  line.clear();
  line_too_long_ = false;
  bool any = false;
  while (begin_ < end_ || fill()) {
    any = true;
    const char* from = buffer_.data() + begin_;
    const auto* newline = static_cast<const char*>(std::memchr(from, '\n', end_ - begin_));
    const size_t count = newline ? static_cast<size_t>(newline - from) : end_ - begin_;
    const size_t room = static_cast<size_t>(max_line_bytes_) - line.size();
    if (count > room) line_too_long_ = true;
    line.append(from, std::min(count, room));
    begin_ += count + (newline ? 1 : 0);
    if (newline) break;
  }
  if (!any) return false;
  ++line_number_;
  if (!line.empty() && line.back() == '\r') line.pop_back();
  if (line_number_ == 1 && line.starts_with("\xEF\xBB\xBF")) line.erase(0, 3);
  return true;
}

}  // namespace ringfold
