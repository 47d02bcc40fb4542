// UTF-8 from outside: where it is broken, and its code points where it is not.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace ringfold {

// Byte offset of the first sequence that is no UTF-8 (RFC 3629: no overlong forms, no surrogates, at most U+10FFFF).
std::optional<size_t> invalid_utf8_offset(std::string_view text);

// The code point that starts at byte `pos` of valid UTF-8; moves `pos` behind it.
char32_t next_code_point(std::string_view text, size_t& pos);

void append_utf8(char32_t code_point, std::string& out);

// Text from a file as it may stand in a one-line message: cut after `limit` bytes, without control characters.
std::string printable(std::string_view text, size_t limit = 60);

}  // namespace ringfold
