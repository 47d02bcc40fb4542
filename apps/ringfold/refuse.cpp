// How a parallel command ends that was refused or failed; the build without torch has its own in no_torch.cpp.
#include "commands.h"
#include "ringfold/mesh/failure.h"
#include "ringfold/train/session.h"

namespace ringfold {

int refuse_parallel_start(const Error& error) {
  return refuse_start(error);
}

int report_parallel_failure(const std::exception& failure) {
  const auto* known = dynamic_cast<const Error*>(&failure);
  // Settings, data and plans are the same on every rank by then: one of them speaks.
  const bool shared =
      known != nullptr && (known->exit_code() == ExitCode::kUsage || known->exit_code() == ExitCode::kNoPlan);
  return report_failure(failure, read_launch_env(), shared);
}

}  // namespace ringfold
