// A TOML recipe as flat flags. Tables only group keys: [train] lr = 1e-4 is --lr 1e-4. Keys may use - or _.
#pragma once

#include <string>
#include <vector>

#include "flags.h"

namespace ringfold {

struct RecipeEntry {
  const Flag* flag = nullptr;
  std::string text;   // as it would stand on the command line
  std::string where;  // "[recipe] FILE:LINE: key", which begins each error about it
};

// Reads FILE. UsageError with file and line for: unreadable file, broken TOML, a key that no subcommand knows (with the
// nearest that one does), a key given twice, a value of the wrong type. Values are not checked yet.
std::vector<RecipeEntry> read_recipe(const std::string& file, const std::vector<Flag>& flags, Command command);
// The same for a text; `file` stands in its errors only.
std::vector<RecipeEntry> parse_recipe(const std::string& text, const std::string& file, const std::vector<Flag>& flags,
                                      Command command);

}  // namespace ringfold
