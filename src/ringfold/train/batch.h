// The samples of one step with all that was fixed before it: weights, old log-probs, advantages.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "ringfold/data/sample.h"
#include "ringfold/plan/planner.h"
#include "ringfold/train/loss_weights.h"

namespace ringfold {

// Per-sample RL values that are not in the file or were derived from it; by index in the data set.
struct RlFields {
  std::vector<std::vector<double>> old_log_probs;     // one a response token
  std::vector<double> advantages;                     // one a sample; those of the data, one a token, go before
  std::vector<std::vector<double>> token_advantages;  // one a response token, before both; empty where there are none
  std::vector<std::vector<double>> ref_log_probs;     // with use_kl_loss or kl_coef; else empty
  std::vector<std::vector<double>> rollout_weights;   // with use_tis; else empty
};

struct StepBatch {
  std::vector<const Sample*> samples;  // in input order
  std::vector<int64_t> data_indices;   // of each sample in the data set
  LossWeights weights;
  const RlFields* rl = nullptr;  // null for SFT and forward-only passes
  std::unordered_map<int64_t, size_t> by_id;

  // loss_scale_factor: of dr-grpo, see loss_weights.h.
  StepBatch(const Dataset& data, const std::vector<int64_t>& indices, LossAggregation aggregation,
            double loss_scale_factor = 0);
  // Position in `samples`.
  size_t position(SampleId id) const { return by_id.at(id.value()); }
  std::vector<SampleLength> lengths() const;
};

}  // namespace ringfold
