#include "ringfold/base/outside_text.h"

#include <cstdint>
#include <cstring>

namespace ringfold {
namespace {

// Bytes of the sequence at the head of `text`, 0 when it is none. Table 3-7 of the Unicode standard.
size_t sequence_bytes(std::string_view text) {
  const auto at = [&text](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = at(0);
  if (lead < 0x80) return 1;
  const size_t size = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || text.size() < size) return 0;
  const unsigned char low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  const unsigned char high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  if (at(1) < low || at(1) > high) return 0;
  for (size_t i = 2; i < size; ++i) {
    if ((at(i) & 0xC0) != 0x80) return 0;
  }
  return size;
}

}  // namespace

std::optional<size_t> invalid_utf8_offset(std::string_view text) {
  constexpr uint64_t kHighBits = 0x8080808080808080ULL;
  size_t pos = 0;
  while (pos < text.size()) {
    // Eight ASCII bytes at a time.
    uint64_t word = 0;
    while (pos + 8 <= text.size() && (std::memcpy(&word, text.data() + pos, 8), (word & kHighBits) == 0)) pos += 8;
    if (pos == text.size()) break;
    const size_t size = sequence_bytes(text.substr(pos));
    if (size == 0) return pos;
    pos += size;
  }
  return std::nullopt;
}

std::string printable(std::string_view text, size_t limit) {
  size_t end = text.size();
  if (end > limit) {
    end = limit;
    while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  }
  std::string shown(text.substr(0, end));
  const bool keep_high = !invalid_utf8_offset(shown);
  for (char& c : shown) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < ' ' || byte == 0x7F || (byte > 0x7F && !keep_high)) c = '?';
  }
  return end < text.size() ? shown + "..." : shown;
}

bool nested_deeper_than(std::string_view json_text, int levels) {
  int depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < json_text.size(); ++i) {
    const char c = json_text[i];
    if (c == '"') {
      in_string = !in_string;
    } else if (in_string) {
      if (c == '\\') ++i;
    } else if (c == '[' || c == '{') {
      if (++depth > levels) return true;
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return false;
}

}  // namespace ringfold
