// From argv to settings: flags through CLI11, recipes through TOML; flags win over the recipe, the last of equal flags
// over those before it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "commands.h"

namespace ringfold {

// The subcommand of that name. UsageError for a name that is unknown (with the nearest) or not built yet.
Command find_command(const std::string& name);

struct ParsedCommand {
  RunSettings settings;
  CommandOptions options;
  std::optional<std::string> help;  // --help was asked for: print this and end
};

// `arguments`: what follows the subcommand. UsageError in one line for whatever is wrong with it.
ParsedCommand parse_command(Command command, const std::vector<std::string>& arguments);

// The help of the whole program.
std::string program_help();

}  // namespace ringfold
