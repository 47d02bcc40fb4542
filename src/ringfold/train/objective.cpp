#include "ringfold/train/objective.h"

#include <ATen/ATen.h>

#include <algorithm>

namespace ringfold {

void LossSums::add(const LossSums& other) {
  loss += other.loss;
  tokens += other.tokens;
  entropy += other.entropy;
  clipped += other.clipped;
  old_minus_new += other.old_minus_new;
  ratio_deviation = std::max(ratio_deviation, other.ratio_deviation);
}

ObjectiveResult token_loss(const RunSettings& settings, const TokenScores& scores, const TokenTerms& terms) {
  // fp64 from here on: a handful of elementwise operations on one number a token, and the sum is what users compare.
  const at::Tensor log_prob_n = scores.log_prob_n.to(at::kDouble);
  ObjectiveResult result;
  LossSums& sums = result.sums;
  sums.tokens = static_cast<double>(log_prob_n.numel());
  sums.entropy = scores.entropy_n.detach().sum(at::kDouble).item<double>();
  if (settings.objective == Objective::kSft) {
    result.loss = (terms.weight_n * log_prob_n).sum().neg();
  } else {
    const double low = 1 - settings.eps_clip;
    const double high = 1 + (settings.eps_clip_high > 0 ? settings.eps_clip_high : settings.eps_clip);
    // The clamp keeps exp finite when a policy has drifted absurdly far.
    const at::Tensor difference_n = (log_prob_n - terms.old_log_prob_n).clamp(-20, 20);
    const at::Tensor ratio_n = difference_n.exp();
    const at::Tensor plain_n = -terms.advantage_n * ratio_n;
    const at::Tensor clipped_n = -terms.advantage_n * ratio_n.clamp(low, high);
    result.loss = (terms.weight_n * at::maximum(plain_n, clipped_n)).sum();
    if (log_prob_n.numel() > 0) {
      sums.clipped = clipped_n.gt(plain_n).sum().item<double>();
      sums.old_minus_new = difference_n.sum().neg().item<double>();
      sums.ratio_deviation = (ratio_n - 1).abs().max().item<double>();
    }
  }
  sums.loss = result.loss.item<double>();
  return result;
}

}  // namespace ringfold
