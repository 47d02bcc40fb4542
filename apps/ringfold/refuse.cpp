// How a run of several ranks ends badly; the build without torch has its own in no_torch.cpp.
#include "commands.h"
#include "ringfold/mesh/failure.h"
#include "ringfold/train/session.h"

namespace ringfold {

int refuse_parallel_start(const Error& error) {
  return static_cast<int>(refuse_start(error));
}

int report(const std::exception& failure) {
  LaunchEnv env;
  try {
    env = read_launch_env();
  } catch (const Error&) {
    // A wrong environment is what is being reported.
  }
  return report_failure(failure, env);
}

}  // namespace ringfold
