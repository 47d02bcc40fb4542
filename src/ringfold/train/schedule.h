// Learning rate by step: linear warm-up, then constant or cosine down to min_lr. Depends on the step alone.
#pragma once

#include <cstdint>

#include "ringfold/train/settings.h"

namespace ringfold {

// Step s is 1-based. s <= warmup: lr * s / warmup. After it: lr, or min_lr + (lr - min_lr) (1 + cos(pi p)) / 2 with
// p = (s - 1 - warmup) / (total - warmup): the first step after the warm-up runs at lr, the last just above min_lr.
double learning_rate(const RunSettings& settings, int64_t step, int64_t total_steps);

// Optimizer steps of the run: max_steps, epochs (rounded up to whole steps), or whichever ends first.
int64_t total_steps(const RunSettings& settings, int64_t steps_per_epoch);

}  // namespace ringfold
