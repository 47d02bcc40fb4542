#include "ringfold/train/batch.h"

#include <algorithm>

namespace ringfold {

StepBatch::StepBatch(const Dataset& data, const std::vector<int64_t>& indices, LossAggregation aggregation,
                     double loss_scale_factor)
    : data_indices(indices) {
  for (const int64_t index : indices) {
    const Sample& sample = data.samples[static_cast<size_t>(index)];
    by_id.emplace(sample.id.value(), samples.size());
    samples.push_back(&sample);
  }
  if (aggregation == LossAggregation::kDrGrpo && loss_scale_factor == 0) {
    for (const Sample& sample : data.samples) {
      loss_scale_factor = std::max(loss_scale_factor, static_cast<double>(sample.response_length));
    }
  }
  weights = loss_weights(samples, aggregation, loss_scale_factor);
}

std::vector<SampleLength> StepBatch::lengths() const {
  std::vector<SampleLength> lengths;
  for (const Sample* sample : samples) lengths.push_back({sample->id, sample->length()});
  return lengths;
}

}  // namespace ringfold
