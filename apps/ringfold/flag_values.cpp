#include "flag_values.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include "ringfold/base/error.h"
#include "ringfold/base/nearest.h"

namespace ringfold {
namespace {

template <typename T>
bool read_whole(const std::string& text, T& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

}  // namespace

int64_t parse_integer(const std::string& text, const std::string& where, int64_t low, int64_t high) {
  int64_t value = 0;
  if (read_whole(text, value) && value >= low && value <= high) return value;
  const bool open = high == std::numeric_limits<int64_t>::max();
  throw UsageError(open ? fmt::format("{}: got \"{}\", expected an integer >= {}", where, text, low)
                        : fmt::format("{}: got \"{}\", expected an integer from {} to {}", where, text, low, high));
}

std::vector<int64_t> parse_integers(const std::string& text, const std::string& where, int64_t low, int64_t high) {
  std::vector<int64_t> values;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    values.push_back(parse_integer(text.substr(begin, end - begin), where, low, high));
    begin = end + 1;
  }
  return values;
}

uint64_t parse_seed(const std::string& text, const std::string& where) {
  uint64_t value = 0;
  if (read_whole(text, value)) return value;
  throw UsageError(fmt::format("{}: got \"{}\", expected an integer from 0 to 2^64 - 1", where, text));
}

double parse_number(const std::string& text, const std::string& where, double low, double high) {
  double value = 0;
  if (read_whole(text, value) && std::isfinite(value) && value >= low && value <= high) return value;
  throw UsageError(std::isfinite(high)
                       ? fmt::format("{}: got \"{}\", expected a number from {} to {}", where, text, low, high)
                       : fmt::format("{}: got \"{}\", expected a number >= {}", where, text, low));
}

bool parse_switch(const std::string& text, const std::string& where) {
  if (text == "true") return true;
  if (text == "false") return false;
  throw UsageError(fmt::format("{}: got \"{}\", expected true or false", where, text));
}

std::string parse_text(const std::string& text, const std::string& where) {
  if (text.empty()) throw UsageError(fmt::format("{}: got an empty value, expected some text", where));
  return text;
}

size_t parse_choice(const std::string& text, const std::string& where, const Choices& choices) {
  const auto found = std::find(choices.names.begin(), choices.names.end(), text);
  if (found != choices.names.end()) return static_cast<size_t>(found - choices.names.begin());
  const std::string expected = fmt::format("{}", fmt::join(choices.names, " or "));
  if (std::find(choices.not_built.begin(), choices.not_built.end(), text) != choices.not_built.end()) {
    throw UsageError(fmt::format("{}: got \"{}\", which is not built yet, expected {}", where, text, expected));
  }
  const std::string near = nearest_name(text, choices.names);
  throw UsageError(fmt::format("{}: got \"{}\", expected {}{}", where, text, expected,
                               near.empty() ? "" : fmt::format(". Hint: did you mean \"{}\"?", near)));
}

}  // namespace ringfold
