#include "ringfold/train/kl.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

namespace ringfold {

at::Tensor kl_estimate(KlType type, const at::Tensor& log_prob_n, const at::Tensor& ref_log_prob_n) {
  const at::Tensor x_n = ref_log_prob_n - log_prob_n;
  if (type == KlType::kK1) return -x_n;
  if (type == KlType::kK2) return x_n.square() / 2;
  const at::Tensor bounded_n = x_n.clamp(-20, 20);
  const at::Tensor k3_n = bounded_n.exp() - bounded_n - 1;
  return type == KlType::kLowVarKl ? k3_n.clamp(-10, 10) : k3_n;
}

double kl_estimate(KlType type, double log_prob, double ref_log_prob) {
  const double x = ref_log_prob - log_prob;
  if (type == KlType::kK1) return -x;
  if (type == KlType::kK2) return x * x / 2;
  const double bounded = std::clamp(x, -20.0, 20.0);
  const double k3 = std::exp(bounded) - bounded - 1;
  return type == KlType::kLowVarKl ? std::clamp(k3, -10.0, 10.0) : k3;
}

}  // namespace ringfold
