// Bare sample lengths, for dry runs: `--lengths 900,100` and lengths files.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ringfold {

// Comma-separated lengths. `where` begins each DataError message.
std::vector<int64_t> parse_lengths(const std::string& text, const std::string& where);

// A text file (also .gz): lengths separated by commas, blanks or ends of line; the rest of a line after # is a comment.
// DataError names file, line and the text that is no length.
std::vector<int64_t> load_lengths(const std::string& file);

}  // namespace ringfold
