// `ringfold launch -n N -- SUBCOMMAND ...`: this same binary as N ranks on this host.
#pragma once

#include <string>
#include <vector>

namespace ringfold {

// `command` is what follows "--". Returns the exit code; see launch_processes() for signals and failures.
int launch_main(int ranks, const std::vector<std::string>& command);

}  // namespace ringfold
