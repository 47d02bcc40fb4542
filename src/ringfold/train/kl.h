// Estimators of KL(p | reference) from one sampled token (Schulman, "Approximating KL divergence", 2020), with
// x = log reference - log p:
//   k1  -x              unbiased; its gradient says nothing about the KL: for rewards
//   k2  x^2 / 2
//   k3  exp(x) - x - 1  unbiased, never negative (GRPO, arXiv:2402.03300)
//   low_var_kl          k3 within [-10, 10], as verl and slime have it
#pragma once

#include <ATen/core/Tensor.h>

#include "ringfold/train/settings.h"

namespace ringfold {

constexpr KlType kl_type_as_loss(const RunSettings& settings) {
  return settings.kl_loss_type == KlType::kByUse ? KlType::kK3 : settings.kl_loss_type;
}
constexpr KlType kl_type_as_reward(const RunSettings& settings) {
  return settings.kl_loss_type == KlType::kByUse ? KlType::kK1 : settings.kl_loss_type;
}

// One value a token; differentiable in log_prob. x is kept within [-20, 20] inside the exponential.
at::Tensor kl_estimate(KlType type, const at::Tensor& log_prob_n, const at::Tensor& ref_log_prob_n);
double kl_estimate(KlType type, double log_prob, double ref_log_prob);

}  // namespace ringfold
