#include "ringfold/data/utf8.h"

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

char32_t next_code_point(std::string_view text, size_t& pos) {
  const auto byte = [&text, &pos] { return static_cast<char32_t>(static_cast<unsigned char>(text[pos++])); };
  const char32_t lead = byte();
  if (lead < 0x80) return lead;
  const int more = lead >= 0xF0 ? 3 : lead >= 0xE0 ? 2 : 1;
  char32_t code_point = lead & (0x3F >> more);
  for (int i = 0; i < more; ++i) code_point = code_point << 6 | (byte() & 0x3F);
  return code_point;
}

void append_utf8(char32_t code_point, std::string& out) {
  const auto tail = [&](int shift) { out += static_cast<char>(0x80 | (code_point >> shift & 0x3F)); };
  if (code_point < 0x80) {
    out += static_cast<char>(code_point);
  } else if (code_point < 0x800) {
    out += static_cast<char>(0xC0 | code_point >> 6);
    tail(0);
  } else if (code_point < 0x10000) {
    out += static_cast<char>(0xE0 | code_point >> 12);
    tail(6);
    tail(0);
  } else {
    out += static_cast<char>(0xF0 | code_point >> 18);
    tail(12);
    tail(6);
    tail(0);
  }
}

std::string printable(std::string_view text, size_t limit) {
  std::string out(text.substr(0, limit));
  // A character that the cut went through is left out.
  while (out.size() < text.size() && !out.empty() && (static_cast<unsigned char>(text[out.size()]) & 0xC0) == 0x80) {
    out.pop_back();
  }
  const bool keep_high = !invalid_utf8_offset(out);
  for (char& c : out) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < ' ' || byte == 0x7F || (byte > 0x7F && !keep_high)) c = '?';
  }
  return out.size() < text.size() ? out + "..." : out;
}

}  // namespace ringfold
