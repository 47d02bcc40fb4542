// The known name nearest to a mistyped one, for hints in errors about keys and flags.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace ringfold {

// Number of single-character insertions, deletions, replacements and swaps of neighbours that lead from a to b.
int edit_distance(std::string_view a, std::string_view b);

// The known name nearest to `name`, first of equals; empty when even that one is too far off to be meant.
std::string nearest_name(std::string_view name, std::span<const std::string> known);

}  // namespace ringfold
