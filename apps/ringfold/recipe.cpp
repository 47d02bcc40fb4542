#include "recipe.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <map>
#include <sstream>

#include <toml++/toml.h>

#include "ringfold/base/error.h"
#include "ringfold/base/nearest.h"

namespace ringfold {
namespace {

std::string slurp(const std::string& file) {
  errno = 0;
  std::ifstream in(file, std::ios::binary);
  std::ostringstream text;
  // Reading nothing sets a failure bit, also for an empty file: only a broken stream counts.
  if (in && in.peek() != std::ifstream::traits_type::eof()) text << in.rdbuf();
  if (!in.is_open() || in.bad() || text.bad() || errno == EISDIR) {
    throw UsageError(fmt::format("[recipe] {}: cannot read: {}. Hint: --config names a TOML file", file,
                                 std::strerror(errno ? errno : EIO)));
  }
  return text.str();
}

std::string type_of(const toml::node& node) {
  if (node.is_string()) return "a string";
  if (node.is_integer()) return "an integer";
  if (node.is_floating_point()) return "a number";
  if (node.is_boolean()) return "true or false";
  if (node.is_array()) return "an array";
  if (node.is_table()) return "a table";
  return "a date or time";
}

std::string wanted_type(FlagKind kind) {
  switch (kind) {
    case FlagKind::kSwitch:
      return "true or false";
    case FlagKind::kInteger:
      return "an integer";
    case FlagKind::kNumber:
      return "a number";
    case FlagKind::kText:
      return "a string";
    case FlagKind::kList:
      return "an array or a string";
  }
  return "";
}

bool fits(const toml::node& node, FlagKind kind) {
  switch (kind) {
    case FlagKind::kSwitch:
      return node.is_boolean();
    case FlagKind::kInteger:
      return node.is_integer();
    case FlagKind::kNumber:
      return node.is_number();
    case FlagKind::kText:
      return node.is_string();
    case FlagKind::kList:
      return node.is_string() || node.is_array() || node.is_integer();
  }
  return false;
}

// One value as it would stand on the command line; empty for tables, arrays and dates.
std::string scalar_text(const toml::node& node) {
  if (const auto* text = node.as_string()) return text->get();
  if (const auto* integer = node.as_integer()) return fmt::format("{}", integer->get());
  if (const auto* number = node.as_floating_point()) return fmt::format("{}", number->get());
  if (const auto* flag = node.as_boolean()) return flag->get() ? "true" : "false";
  return "";
}

class Reader {
 public:
  Reader(const std::string& file, const std::vector<Flag>& flags, Command command)
      : file_(file), flags_(flags), command_(command) {}

  void read(const toml::table& table) {
    collect(table);
    // toml++ keeps keys in alphabetic order; errors should come in that of the file.
    std::stable_sort(found_.begin(), found_.end(), [](const Found& a, const Found& b) { return a.line < b.line; });
    for (const Found& found : found_) read_entry(found);
  }

  std::vector<RecipeEntry> take() { return std::move(entries_); }

 private:
  struct Found {
    std::string key;
    uint32_t line;
    const toml::node* node;
  };

  void collect(const toml::table& table) {
    for (const auto& [key, node] : table) {
      if (const auto* inner = node.as_table()) {
        collect(*inner);
      } else {
        found_.push_back({std::string(key.str()), static_cast<uint32_t>(key.source().begin.line), &node});
      }
    }
  }

  void read_entry(const Found& found) {
    const std::string where = fmt::format("[recipe] {}:{}: {}", file_, found.line, found.key);
    std::string name = found.key;
    std::replace(name.begin(), name.end(), '_', '-');
    const Flag& flag = find(name, where);
    if (flag.hidden) flag.set("", where);  // not built: refused whatever the value
    const auto [first, is_new] = line_of_.emplace(name, found.line);
    if (!is_new) throw UsageError(fmt::format("{}: given twice, first on line {}", where, first->second));
    entries_.push_back({&flag, text_of(*found.node, flag, where), where});
  }

  const Flag& find(const std::string& name, const std::string& where) const {
    const Flag* other = nullptr;
    std::vector<std::string> known;
    for (const Flag& flag : flags_) {
      if (flag.name == name && flag.belongs_to(command_)) return flag;
      if (flag.name == name) other = &flag;
      if (!flag.hidden) known.push_back(flag.name);
    }
    if (other) return *other;
    const std::string near = nearest_name(name, known);
    throw UsageError(fmt::format("{}: unknown key. Hint: {}", where,
                                 near.empty() ? "keys are the names of flags; see docs/reference/flags.md"
                                              : fmt::format("did you mean {}?", near)));
  }

  std::string text_of(const toml::node& node, const Flag& flag, const std::string& where) const {
    if (!fits(node, flag.kind)) {
      throw UsageError(fmt::format("{}: got {}, expected {}", where, type_of(node), wanted_type(flag.kind)));
    }
    const auto* array = node.as_array();
    if (!array) return scalar_text(node);
    std::string text;
    for (const toml::node& item : *array) {
      const std::string word = scalar_text(item);
      if (word.empty())
        throw UsageError(fmt::format("{}: got {} in the array, expected a value", where, type_of(item)));
      text += (text.empty() ? "" : ",") + word;
    }
    return text;
  }

  const std::string& file_;
  const std::vector<Flag>& flags_;
  Command command_;
  std::vector<Found> found_;
  std::map<std::string, uint32_t> line_of_;
  std::vector<RecipeEntry> entries_;
};

}  // namespace

std::vector<RecipeEntry> read_recipe(const std::string& file, const std::vector<Flag>& flags, Command command) {
  return parse_recipe(slurp(file), file, flags, command);
}

std::vector<RecipeEntry> parse_recipe(const std::string& text, const std::string& file, const std::vector<Flag>& flags,
                                      Command command) {
  try {
    Reader reader(file, flags, command);
    reader.read(toml::parse(text));
    return reader.take();
  } catch (const toml::parse_error& error) {
    throw UsageError(
        fmt::format("[recipe] {}:{}: broken TOML: {}", file, error.source().begin.line, error.description()));
  }
}

}  // namespace ringfold
