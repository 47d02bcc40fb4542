// Group-relative advantages (GRPO, DeepSeekMath, arXiv:2402.03300): A_i = (r_i - mean_g) / (std_g + 1e-6), one value a
// sample, the same for each of its response tokens. Computed over the whole file before the first step, because the
// samples of one prompt may fall into different steps.
#pragma once

#include <string>
#include <vector>

#include "ringfold/data/sample.h"

namespace ringfold {

struct Advantages {
  std::vector<double> per_sample;  // by index in the data set
  int64_t groups = 0;
  int64_t single_groups = 0;  // groups of one sample: advantage 0
  int64_t flat_groups = 0;    // groups whose rewards are all equal: advantage 0
};

// std is the sample standard deviation (n - 1), as verl and TRL use it. DataError names the first sample without a
// reward or without a group.
Advantages group_advantages(const Dataset& data);

}  // namespace ringfold
