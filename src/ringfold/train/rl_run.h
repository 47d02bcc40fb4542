// `ringfold rl`: the policy improves on its own responses. One iteration:
//   rollout -> rewards -> old and reference log-probs -> advantages -> optimizer steps
// on the same weights throughout: what samples is what trains, nothing is converted or copied between the two. The
// steps are those of `ringfold train` (train/step.h). Prompts, random numbers and learning rates are functions of the
// rollout and the step, so that a checkpoint after a rollout (train/checkpoint.h) is all that a resumed run needs.
#pragma once

#include "ringfold/train/settings.h"

namespace ringfold {

// The whole command; the exit code, 128 + n after signal n. Throws Error.
int run_rl(const RunSettings& settings);

}  // namespace ringfold
