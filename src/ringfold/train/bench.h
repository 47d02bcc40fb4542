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
  std::string lengths_file;  // one length a line; samples get seeded random tokens. Or --data in RunSettings
  int64_t steps = 5;         // global batches measured for each policy
  int64_t warmup_steps = 1;  // run and thrown away
  double peak_tflops = 0;    // of one device, for MFU; 0: MFU is not shown
};

// Whole `ringfold bench`: forward, backward and reduction of each global batch under each policy (no update). Prints a
// table, or JSON, on rank 0.
int run_bench_policies(const RunSettings& settings, const BenchSettings& bench, bool json);

}  // namespace ringfold
