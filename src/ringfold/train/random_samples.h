// Samples of seeded random tokens, for what is timed and does not depend on them. Every rank makes the same.
#pragma once

#include <cstdint>

#include "ringfold/data/sample.h"

namespace ringfold {

class RandomSamples {
 public:
  RandomSamples(uint64_t seed, int64_t vocab_size) : state_(seed * 2654435761u + 1), vocab_size_(vocab_size) {}
  // Every token but the first is a loss token.
  Sample make(SampleId id, int64_t length);

 private:
  uint64_t state_;
  int64_t vocab_size_;
};

}  // namespace ringfold
