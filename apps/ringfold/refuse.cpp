// How a parallel command ends that was refused or failed; the build without torch has its own in no_torch.cpp.
#include "commands.h"
#include "ringfold/mesh/failure.h"
#include "ringfold/mesh/process_end.h"
#include "ringfold/train/session.h"

namespace ringfold {

int refuse_parallel_start(const Error& error) {
  return refuse_start(error);
}

int run_parallel(const std::function<int()>& command) {
  int code = 0;
  try {
    code = command();
  } catch (const std::exception& failure) {
    code = report_run_failure(failure, read_launch_env());
  }
  end_process_soon(code);
  return code;
}

}  // namespace ringfold
