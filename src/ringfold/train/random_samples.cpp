#include "ringfold/train/random_samples.h"

namespace ringfold {

Sample RandomSamples::make(SampleId id, int64_t length) {
  Sample sample;
  sample.id = id;
  sample.line = id.value() + 1;
  for (int64_t t = 0; t < length; ++t) {
    state_ = state_ * 6364136223846793005ULL + 1442695040888963407ULL;
    sample.tokens.push_back(static_cast<int64_t>((state_ >> 33) % static_cast<uint64_t>(vocab_size_)));
  }
  sample.response_length = length - 1;
  sample.loss_mask.assign(static_cast<size_t>(length), 1);
  sample.loss_mask[0] = 0;
  return sample;
}

}  // namespace ringfold
