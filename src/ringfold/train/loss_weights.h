// The weight of every loss token, fixed before the step from the whole global batch (spec 6): a rank's loss is the
// weighted sum over its own loss tokens and gradients are summed once, so no CP, DP or micro-batch factor exists.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ringfold/data/sample.h"
#include "ringfold/train/settings.h"

namespace ringfold {

struct LossWeights {
  std::vector<double> per_sample;  // weight of each loss token of batch[i]; 0 for a sample without loss tokens
  int64_t loss_tokens = 0;         // of the step, each counted once
};

// token-mean: 1 / N, N all loss tokens of the step. seq-mean-token-sum: 1 / B, B samples of the step.
// seq-mean-token-mean: 1 / (B n_i), n_i loss tokens of the whole sample i.
LossWeights loss_weights(std::span<const Sample* const> batch, LossAggregation aggregation);

}  // namespace ringfold
