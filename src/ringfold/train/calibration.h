// Measuring what packs cost on this machine, for the cost model that plans go by.
#pragma once

#include <string>
#include <vector>

#include "ringfold/plan/calibrate.h"
#include "ringfold/train/bench.h"
#include "ringfold/train/step.h"

namespace ringfold {

// A pack's time, and how sure it is.
struct TimedPack {
  MeasuredPack measured;
  double spread = 0;  // (slowest - fastest run) / median
};

// The packs that --calibrate asks for on this lane: every CP size that it holds, up to the budget and the longest
// sample accepted. UsageError when they are too few for a fit.
std::vector<CalibrationPack> packs_to_time(const Topology& topology);

// Runs each pack forward and backward `bench.warmup_steps` + `bench.steps` times on end, on every aligned group of its
// size at once, as a step would keep them busy. Every rank returns the same: of a run the slowest rank's time, of a
// pack the median of the runs after the warm-up. Gradients are left behind in state.flat.
std::vector<TimedPack> time_packs(Session& session, TrainState& state, const std::vector<CalibrationPack>& packs,
                                  const BenchSettings& bench);

// Times, fits, and on rank 0 writes bench.calibrate and prints measured beside fitted as a table or JSON.
void run_calibration(Session& session, TrainState& state, const BenchSettings& bench, bool json);

}  // namespace ringfold
