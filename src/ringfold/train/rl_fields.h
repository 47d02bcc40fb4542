// What is fixed before the first step on a rollout: old and reference log-probs, truncated importance weights,
// advantages. The rollout was made by the policy as it is now.
#pragma once

#include "ringfold/models/qwen3/model.h"
#include "ringfold/train/batch.h"
#include "ringfold/train/reference_weights.h"
#include "ringfold/train/session.h"

namespace ringfold {

// Old log-probs: `rollout_log_probs` with --use-rollout-logprobs, else `old_log_probs`, else one forward pass with the
// weights as they are. Reference log-probs, where the KL is asked for: a pass with `reference`, else `ref_log_probs`,
// else the weights as they are (the same pass as the old ones). Advantages: the data's own, else from rewards
// (advantages.h). All passes plan with the log-prob budget and give full-length results in input order. DataError names
// the first sample that lacks a field. Every rank calls it; the passes are collective. The model is as before
// afterwards. `resumed`: old and reference log-probs of a checkpoint, which come before all others; empty for a new
// run.
RlFields rl_fields(Session& session, DenseModel& model, const Dataset& data, const ReferenceWeights* reference,
                   RlFields resumed = {});

}  // namespace ringfold
