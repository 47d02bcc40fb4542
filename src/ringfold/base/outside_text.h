// Text that came from outside: what a one-line message may show of it, and a bound that keeps recursive readers safe.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace ringfold {

// Byte offset of the first sequence that is no UTF-8 (RFC 3629: no overlong forms, no surrogates, at most U+10FFFF).
std::optional<size_t> invalid_utf8_offset(std::string_view text);

// `text` for a message: control characters as '?', also bytes above 127 where it is no UTF-8; at most `limit` bytes and
// then "...", never half a UTF-8 character.
std::string printable(std::string_view text, size_t limit = 120);

// Whether brackets and braces of a JSON text are nested deeper than `levels`; strings are skipped. A parser's values
// are printed and freed by recursion, so a file of a million '[' would exhaust the stack.
bool nested_deeper_than(std::string_view json_text, int levels);

}  // namespace ringfold
