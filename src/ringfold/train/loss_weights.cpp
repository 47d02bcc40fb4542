#include "ringfold/train/loss_weights.h"

namespace ringfold {

LossWeights loss_weights(std::span<const Sample* const> batch, LossAggregation aggregation) {
  LossWeights weights;
  std::vector<int64_t> counts;
  for (const Sample* sample : batch) {
    counts.push_back(sample->loss_tokens());
    weights.loss_tokens += counts.back();
  }
  const auto samples = static_cast<double>(batch.size());
  for (const int64_t count : counts) {
    double weight = 0;
    if (count > 0) {
      switch (aggregation) {
        case LossAggregation::kTokenMean:
          weight = 1.0 / static_cast<double>(weights.loss_tokens);
          break;
        case LossAggregation::kSeqMeanTokenSum:
          weight = 1.0 / samples;
          break;
        case LossAggregation::kSeqMeanTokenMean:
          weight = 1.0 / (samples * static_cast<double>(count));
          break;
      }
    }
    weights.per_sample.push_back(weight);
  }
  return weights;
}

}  // namespace ringfold
