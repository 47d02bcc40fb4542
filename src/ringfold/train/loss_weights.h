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
  std::vector<double> per_sample;          // weight of each loss token of batch[i]; 0 for a sample without loss tokens
  std::vector<int64_t> tokens_per_sample;  // loss tokens of batch[i]
  int64_t loss_tokens = 0;                 // of the step, each counted once
};

// token-mean: 1 / N, N all loss tokens of the step. seq-mean-token-sum: 1 / B, B samples of the step.
// seq-mean-token-mean: 1 / (B n_i), n_i loss tokens of the whole sample i. dr-grpo (arXiv:2503.20783): 1 / (B C), the
// constant C = loss_scale_factor, so that long answers weigh no less by token; StepBatch takes the longest response of
// the data when none is given.
LossWeights loss_weights(std::span<const Sample* const> batch, LossAggregation aggregation,
                         double loss_scale_factor = 0);

}  // namespace ringfold
