// Code points of valid UTF-8 (validity: base/outside_text.h).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "ringfold/base/outside_text.h"

namespace ringfold {

// The code point that starts at byte `pos` of valid UTF-8; moves `pos` behind it.
char32_t next_code_point(std::string_view text, size_t& pos);

void append_utf8(char32_t code_point, std::string& out);

}  // namespace ringfold
