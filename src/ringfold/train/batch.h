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
  std::vector<std::vector<double>> old_log_probs;  // one a response token
  std::vector<double> advantages;                  // one a sample; unused when the sample brings its own per token
};

struct StepBatch {
  std::vector<const Sample*> samples;  // in input order
  std::vector<int64_t> data_indices;   // of each sample in the data set
  LossWeights weights;
  const RlFields* rl = nullptr;  // null for SFT and forward-only passes
  std::unordered_map<int64_t, size_t> by_id;

  StepBatch(const Dataset& data, const std::vector<int64_t>& indices, LossAggregation aggregation);
  // Position in `samples`.
  size_t position(SampleId id) const { return by_id.at(id.value()); }
  std::vector<SampleLength> lengths() const;
};

}  // namespace ringfold
