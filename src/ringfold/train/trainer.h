// The training run: files in, steps, weights out.
#pragma once

#include "ringfold/base/error.h"
#include "ringfold/train/settings.h"

namespace ringfold {

// Whole `ringfold train`. Returns the exit code; throws Error.
int run_training(const RunSettings& settings);

}  // namespace ringfold
