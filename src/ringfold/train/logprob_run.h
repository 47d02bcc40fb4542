// The forward-only command: a file of samples in, their log-probs out.
#pragma once

#include "ringfold/train/settings.h"

namespace ringfold {

// Whole `ringfold logprob`: one record a sample in input order, written by rank 0 to settings.output_file. Returns the
// exit code; throws Error.
int run_log_probs(const RunSettings& settings);

}  // namespace ringfold
