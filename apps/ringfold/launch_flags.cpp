// `ringfold launch`: from its flags to the launcher.
#include "commands.h"
#include "launch.h"

namespace ringfold {

int run_launch(const RunSettings&, const CommandOptions& options) {
  if (options.launch_processes == 0) {
    throw UsageError("[flags] --processes: not given, expected the number of ranks. Hint: ringfold launch -n 4 -- ...");
  }
  return launch_main(options.launch_processes, options.launch_command);
}

}  // namespace ringfold
