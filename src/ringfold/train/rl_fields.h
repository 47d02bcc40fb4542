// Old log-probs and advantages, fixed before the first step: the file is one rollout, made by the initial policy.
#pragma once

#include "ringfold/models/qwen3/model.h"
#include "ringfold/train/batch.h"
#include "ringfold/train/session.h"

namespace ringfold {

// Old log-probs: `rollout_log_probs` with --use-rollout-logprobs, else `old_log_probs`, else one forward pass over the
// whole file with the weights as they are. Advantages: the file's own, else group-normalised rewards. DataError names
// the first sample that lacks a field. Every rank calls it; the pass is collective.
RlFields rl_fields(Session& session, const DenseModel& model, const Dataset& data);

}  // namespace ringfold
