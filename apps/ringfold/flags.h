// Every flag of every subcommand, bound once: the command line, recipes, --help and docs/reference/flags.md go by this
// table.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "commands.h"

namespace ringfold {

enum class FlagKind { kSwitch, kInteger, kNumber, kText, kList };

struct Flag {
  std::string name;         // without the leading --; launch's "processes" is also -n
  std::string placeholder;  // of the value in --help; empty for a switch
  std::string help;
  std::string group;
  unsigned commands = 0;  // bits by Command
  FlagKind kind = FlagKind::kText;
  // Takes the value as written ("true" or "false" for a switch). `where` begins each UsageError: "[flags] --lr".
  std::function<void(const std::string& text, const std::string& where)> set;
  bool hidden = false;  // known only to be refused by name: not built yet

  bool belongs_to(Command command) const { return (commands >> static_cast<unsigned>(command) & 1u) != 0; }
};

// The table. The targets must outlive it; their present values are shown as defaults.
std::vector<Flag> make_flags(RunSettings& settings, CommandOptions& options);

// "plan", "train" ...
std::string name_of(Command command);
// One line for the list of subcommands.
std::string summary_of(Command command);
// A command line that works.
std::string example_of(Command command);
const std::vector<Command>& all_commands();

}  // namespace ringfold
