// Policies side by side on the same samples, alternating in one run, so that ratios are not noise between runs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ringfold/train/settings.h"

namespace ringfold {

struct BenchSettings {
  std::vector<std::string> policies = {"static", "static_work", "uniform",
                                       "mixed"};  // the first is the baseline of the ratios
  // Samples of seeded random tokens, of these lengths: one a line of a file, or drawn from a law (plan/length_laws.h).
  // Neither: --data in RunSettings.
  std::string lengths_file, law;
  int64_t law_samples = 512;
  int64_t steps = 5;         // global batches measured for each policy
  int64_t warmup_steps = 1;  // run and thrown away
  bool update = false;       // the optimizer step is part of what is timed
  std::string profile;       // file for the kernel times of one more step of each policy (GPU)
  std::string timeline;      // file for the last measured step of each policy, one line each (report/timeline.h)
  std::string calibrate;     // cost model to fit instead (calibration.h)
  double peak_tflops = 0;    // of one device, for MFU; 0: MFU is not shown
};

// Whole `ringfold bench`: forward, backward and reduction of each global batch under each policy; or, with
// `calibrate`, of single packs. Prints a table, or JSON, on rank 0.
int run_bench_policies(const RunSettings& settings, const BenchSettings& bench, bool json);

}  // namespace ringfold
