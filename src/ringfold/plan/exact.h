// The best plan there is, by exhaustion: for lanes of a power of two and about ten samples (16: seconds). It bounds
// what `mixed` leaves on the table (docs/benchmarks/planner.md) and shares no search with it.
#pragma once

#include "ringfold/plan/draft.h"

namespace ringfold {

constexpr size_t kMostExactSamples = 16;

// Predicted time of an optimal plan. Lockstep: subsets of samples into micro-steps, packs and sizes. Free: into packs
// on aligned blocks; run widest first they leave no gap, so the busiest rank's sum is the time. O(3^n).
double exact_us(const PackInput& input, Execution execution);

}  // namespace ringfold
