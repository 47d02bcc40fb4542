// Ends a parallel command whose flags are refused; the build without torch has its own in no_torch.cpp.
#include "commands.h"
#include "ringfold/train/session.h"

namespace ringfold {

int refuse_parallel_start(const Error& error) {
  return static_cast<int>(refuse_start(error));
}

}  // namespace ringfold
