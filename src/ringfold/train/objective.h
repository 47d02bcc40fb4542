// Token losses. Each is exact for any mix of CP sizes because it is a plain weighted sum over the tokens of this rank.
//   sft    -log p(token)
//   grpo   max(-A r, -A clip(r, 1 - eps_low, 1 + eps_high)), r = exp(log p - old log p)
//          (PPO clip, arXiv:1707.06347, with group-relative advantages, arXiv:2402.03300)
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "ringfold/kernels/linear_log_prob.h"
#include "ringfold/train/settings.h"

namespace ringfold {

// One entry a loss token of this rank's pack, fp64.
struct TokenTerms {
  at::Tensor weight_n;
  at::Tensor old_log_prob_n;  // RL only
  at::Tensor advantage_n;     // RL only

  TokenTerms rows(int64_t begin, int64_t count) const;
  TokenTerms on(at::Device device) const;
};

// Sums over tokens, added up over packs and ranks; what metrics are made of.
struct LossSums {
  double loss = 0;  // weighted: the reported loss
  double tokens = 0;
  double entropy = 0;
  double clipped = 0;
  double old_minus_new = 0;    // approximate KL (k1) numerator
  double ratio_deviation = 0;  // max |r - 1|, not a sum

  void add(const LossSums& other);
};

struct ObjectiveResult {
  at::Tensor loss;    // scalar fp64, differentiable; 0 without loss tokens, still joined to the graph
  at::Tensor sums_n;  // the LossSums in their order, fp64, where the scores are: reading them would stop the host
};

// Adds up the sums of packs, in order; waits for the device.
LossSums read_sums(const std::vector<at::Tensor>& packs);

ObjectiveResult token_loss(const RunSettings& settings, const TokenScores& scores, const TokenTerms& terms);

}  // namespace ringfold
