#include "ringfold/data/lengths.h"

#include <fmt/format.h>

#include <charconv>

#include "ringfold/base/error.h"
#include "ringfold/base/outside_text.h"
#include "ringfold/data/line_reader.h"

namespace ringfold {
namespace {

constexpr int64_t kMaxLineBytes = int64_t{64} << 20;
// Far above any sample; keeps sums of squared lengths inside 64 bits.
constexpr int64_t kMaxLength = 100'000'000;

void append_length(std::string_view word, const std::string& where, std::vector<int64_t>& lengths) {
  int64_t length = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), length);
  if (error != std::errc() || end != word.data() + word.size() || length < 1 || length > kMaxLength) {
    throw DataError(fmt::format("{} (sample {}): length: got \"{}\", expected an integer >= 1 and <= {}", where,
                                lengths.size(), printable(word, 40), kMaxLength));
  }
  lengths.push_back(length);
}

void append_lengths(std::string_view text, const std::string& where, std::vector<int64_t>& lengths) {
  constexpr std::string_view kSeparators = ", \t\r";
  while (true) {
    const size_t begin = text.find_first_not_of(kSeparators);
    if (begin == std::string_view::npos) return;
    const size_t end = std::min(text.find_first_of(kSeparators, begin), text.size());
    append_length(text.substr(begin, end - begin), where, lengths);
    text.remove_prefix(end);
  }
}

}  // namespace

std::vector<int64_t> parse_lengths(const std::string& text, const std::string& where) {
  std::vector<int64_t> lengths;
  append_lengths(text, where, lengths);
  if (lengths.empty()) throw DataError(where + ": no length given, expected for example 900,100");
  return lengths;
}

std::vector<int64_t> load_lengths(const std::string& file) {
  std::vector<int64_t> lengths;
  LineReader reader(file, kMaxLineBytes);
  std::string line;
  while (reader.next(line)) {
    const std::string where = fmt::format("[data] {}:{}", file, reader.line_number());
    if (reader.line_too_long()) throw DataError(fmt::format("{}: line longer than {} bytes", where, kMaxLineBytes));
    append_lengths(std::string_view(line).substr(0, line.find('#')), where, lengths);
  }
  if (lengths.empty()) throw DataError(fmt::format("[data] {}: no length in the file, expected one a line", file));
  return lengths;
}

}  // namespace ringfold
