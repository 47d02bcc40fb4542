// A cost model fitted to measured packs. Pure: who measures (`ringfold bench --calibrate`) asks for the packs, times
// each, and hands the times back.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "ringfold/plan/cost_model.h"

namespace ringfold {

// One pack to time: forward and backward of these samples on c ranks.
struct CalibrationPack {
  CpSize cp_size{1};
  std::vector<int64_t> lengths;        // real tokens
  std::vector<int64_t> vision_tokens;  // of each sample; empty: none has any
};

struct MeasuredPack {
  CalibrationPack pack;
  double us = 0;  // median of several runs; slowest rank of the group
};

// What to measure so that every term of the model shows: one sample of each length, and full packs of short ones, at
// every CP size up to `largest_cp`; no rank holds more than `budget` tokens, no sample more than `longest`.
std::vector<CalibrationPack> calibration_packs(int largest_cp, int64_t budget, int64_t longest);

struct Calibration {
  CostModel model;
  int packs = 0;
  int outliers = 0;         // more than five times the usual error away; they hardly count in the fit
  double median_error = 0;  // |predicted / measured - 1|
  double worst_error = 0;   // without outliers
  // Terms that no measured pack shows, by key of the file: scaled with the others from `shape`, and not to be trusted.
  std::vector<std::string> unmeasured;
};

// Robust least squares on the logarithm of the times, so that a short pack counts as much as a long one: fixed, linear
// and quadratic terms (by chunk length), latency and bandwidth of hops in and across nodes, vision. `shape` gives
// layers, bytes, FLOPs and the scheme, which stay, and the values the fit starts from. Every term is positive.
// UsageError for fewer than three packs, or a time or length that is not positive. Deterministic.
Calibration calibrate(std::span<const MeasuredPack> measured, const CostModel& shape);

}  // namespace ringfold
