// Advantages from rewards, of a whole rollout: a data file, or what the sampler made. Computed over all of it before
// its first step, because the samples of one prompt may fall into different steps. With r the reward of a sample (less
// kl_coef times the KL of its loss tokens from the reference, when the KL is a reward) and g the samples of its prompt:
//   grpo                         (r - mean_g) / (std_g + 1e-6)                            GRPO, arXiv:2402.03300
//   dr_grpo                      r - mean_g                                               Dr. GRPO, arXiv:2503.20783
//   rloo                         r - mean of the others in g                              RLOO, arXiv:2402.14740
//   reinforce_plus_plus          by token: discounted sum of what follows (the reward at the last loss token, the KL at
//                                every one), whitened                                     REINFORCE++, arXiv:2501.03262
//   reinforce_plus_plus_baseline r - mean_g, whitened                                     the same paper
//   data                         those of the data, one a response token
// Whitening (always with normalize_advantages): to mean 0 and standard deviation 1 over all loss tokens of the rollout.
// A group of one sample has advantage 0 before whitening.
#pragma once

#include <string>
#include <vector>

#include "ringfold/data/sample.h"
#include "ringfold/train/settings.h"

namespace ringfold {

struct Advantages {
  std::vector<double> per_sample;              // by index in the data set
  std::vector<std::vector<double>> per_token;  // one a response token: reinforce_plus_plus, whitened data; else empty
  int64_t groups = 0;                          // 0 where groups play no part
  int64_t single_groups = 0;                   // groups of one sample
  int64_t flat_groups = 0;                     // groups whose rewards are all equal
};

// Whether the data bring an advantage for every response token.
bool has_own_advantages(const Dataset& data);

// Data that bring `advantages` for every response are taken as they are, whatever the estimator.
// `kl`: by sample one value a response token, subtracted from the reward times kl_coef; empty without kl_coef. std is
// the sample standard deviation (n - 1), as verl and TRL use it. DataError names the first sample without a field that
// the estimator needs.
Advantages compute_advantages(const RunSettings& settings, const Dataset& data,
                              const std::vector<std::vector<double>>& kl = {});

}  // namespace ringfold
