// What a training step takes of a rank's memory, from the model's shape and the budget: printed at start, compared with
// the measured peak at the end of a run on a GPU. Where the terms come from: docs/guide/out_of_memory.md.
#pragma once

#include <cstdint>
#include <string>

#include "ringfold/models/common/config.h"
#include "ringfold/plan/settings.h"
#include "ringfold/train/settings.h"

namespace ringfold {

// Bytes of one rank. What the CUDA context, NCCL and the allocator's gaps take is not in it, as it is not in the peak.
struct MemoryEstimate {
  double weights = 0;
  double gradients = 0;    // whole on every rank
  double optimizer = 0;    // moments and fp32 masters: the rank's share of the lane's
  double activations = 0;  // that the layers of one full pack keep for the backward
  double workspace = 0;    // the larger of the head's logits and one layer's backward
  int64_t tokens = 0;      // of that pack on this rank

  double total() const { return weights + gradients + optimizer + activations + workspace; }
};

// `longest` and `all` are real tokens of the data's longest sample and of all samples; 0: not known.
MemoryEstimate estimate_memory(const RunSettings& settings, const Topology& topology, const ModelConfig& config,
                               int64_t longest, int64_t all);

// "12.3 GB a rank: ..." for the start-up table.
std::string to_text(const MemoryEstimate& estimate, int lane_size);

// Rank 0, at the end of a run on a GPU: a line with both numbers, a warning when the peak is over the estimate by more
// than 10 %.
void compare_with_peak(const MemoryEstimate& estimate, int64_t peak_bytes);

}  // namespace ringfold
