// Which samples make up which step: depends on the sample count, the global batch size, the seed and the step alone;
// never on ranks, CP sizes or packing. The same on every platform.
#pragma once

#include <cstdint>
#include <vector>

namespace ringfold {

// Order of the samples (positions 0 .. count-1 in the loaded data set) in one epoch (0-based). File order without
// shuffle; else a Fisher-Yates shuffle over a splitmix64 stream that starts at a mix of seed and epoch.
std::vector<int64_t> sample_order(int64_t count, int64_t epoch, uint64_t seed, bool shuffle);

struct GlobalBatch {
  std::vector<int64_t> indices;  // positions in the data set, in order of the step
  int64_t epoch = 0;             // 0-based
  double epochs_done = 0;        // after the step; 2.0 after two whole epochs
};

// Steps of an epoch. The last batch may be short; it is never dropped. global_batch_size 0: all samples are one step.
int64_t steps_per_epoch(int64_t count, int64_t global_batch_size);

// The batch of a step, 1-based as in metrics.jsonl. Needs count >= 1 and step >= 1; knows no last epoch.
GlobalBatch global_batch(int64_t count, int64_t global_batch_size, int64_t step, uint64_t seed, bool shuffle);

}  // namespace ringfold
