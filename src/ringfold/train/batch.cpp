#include "ringfold/train/batch.h"

namespace ringfold {

StepBatch::StepBatch(const Dataset& data, const std::vector<int64_t>& indices, LossAggregation aggregation)
    : data_indices(indices) {
  for (const int64_t index : indices) {
    const Sample& sample = data.samples[static_cast<size_t>(index)];
    by_id.emplace(sample.id.value(), samples.size());
    samples.push_back(&sample);
  }
  weights = loss_weights(samples, aggregation);
}

std::vector<SampleLength> StepBatch::lengths() const {
  std::vector<SampleLength> lengths;
  for (const Sample* sample : samples) lengths.push_back({sample->id, sample->length()});
  return lengths;
}

}  // namespace ringfold
