#include "launch.h"

#include "ringfold/base/error.h"
#include "ringfold/mesh/launcher.h"

namespace ringfold {

int launch_main(int ranks, const std::vector<std::string>& command) {
  if (command.empty() || command.front() == "launch") {
    throw UsageError(std::string("[launch] command: got ") +
                     (command.empty() ? "nothing" : "'" + command.front() + "'") +
                     ", expected another subcommand after '--'. Hint: ringfold launch -n 4 -- train --config run.toml");
  }
  // The running binary, wherever it was found; the ranks' own name for it stays readable in ps.
  LaunchRequest request{ranks, "/proc/self/exe", {"ringfold"}};
  request.argv.insert(request.argv.end(), command.begin(), command.end());
  return launch_processes(request);
}

}  // namespace ringfold
