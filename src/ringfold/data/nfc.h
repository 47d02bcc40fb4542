// Unicode normalization form C (UAX #15), quick where text is in it already, as nearly all text is.
#pragma once

#include <string>
#include <string_view>

namespace ringfold {

// `text` (valid UTF-8) in NFC: the text itself where nothing changes, else a view of `buffer`, which is overwritten.
std::string_view to_nfc(std::string_view text, std::string& buffer);

}  // namespace ringfold
