#include "ringfold/train/loss_weights.h"

#include "ringfold/base/error.h"

namespace ringfold {

LossWeights loss_weights(std::span<const Sample* const> batch, LossAggregation aggregation, double loss_scale_factor) {
  LossWeights weights;
  for (const Sample* sample : batch) {
    weights.tokens_per_sample.push_back(sample->loss_tokens());
    weights.loss_tokens += weights.tokens_per_sample.back();
  }
  const auto samples = static_cast<double>(batch.size());
  for (const int64_t count : weights.tokens_per_sample) {
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
        case LossAggregation::kDrGrpo:
          RINGFOLD_ASSERT(loss_scale_factor > 0, "dr-grpo divides by a positive constant");
          weight = 1.0 / (samples * loss_scale_factor);
          break;
      }
    }
    weights.per_sample.push_back(weight);
  }
  return weights;
}

}  // namespace ringfold
