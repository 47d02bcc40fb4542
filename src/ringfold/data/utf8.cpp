#include "ringfold/data/utf8.h"

namespace ringfold {
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

}  // namespace ringfold
