#include "ringfold/train/objective.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "ringfold/device/device.h"

namespace ringfold {

void LossSums::add(const LossSums& other) {
  loss += other.loss;
  tokens += other.tokens;
  entropy += other.entropy;
  clipped += other.clipped;
  old_minus_new += other.old_minus_new;
  ratio_deviation = std::max(ratio_deviation, other.ratio_deviation);
}

TokenTerms TokenTerms::rows(int64_t begin, int64_t count) const {
  // Without an RL objective the terms of RL have no rows.
  const auto part = [&](const at::Tensor& x) { return x.size(0) > 0 ? x.narrow(0, begin, count) : x; };
  return {part(weight_n), part(old_log_prob_n), part(advantage_n)};
}

TokenTerms TokenTerms::on(at::Device device) const {
  return {to_device(weight_n, device), to_device(old_log_prob_n, device), to_device(advantage_n, device)};
}

LossSums read_sums(const std::vector<at::Tensor>& packs) {
  LossSums total;
  if (packs.empty()) return total;
  const at::Tensor all = at::stack(packs).cpu();
  const auto values = all.accessor<double, 2>();
  for (int64_t i = 0; i < all.size(0); ++i) {
    total.add({values[i][0], values[i][1], values[i][2], values[i][3], values[i][4], values[i][5]});
  }
  return total;
}

ObjectiveResult token_loss(const RunSettings& settings, const TokenScores& scores, const TokenTerms& terms) {
  // fp64 from here on: a handful of elementwise operations on one number a token, and the sum is what users compare.
  const at::Tensor log_prob_n = scores.log_prob_n.to(at::kDouble);
  const auto options = log_prob_n.options().requires_grad(false);
  const at::Tensor none = at::zeros({}, options);
  ObjectiveResult result;
  at::Tensor clipped = none, old_minus_new = none, ratio_deviation = none;
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
      clipped = clipped_n.gt(plain_n).sum().to(at::kDouble);
      old_minus_new = difference_n.detach().sum().neg();
      ratio_deviation = (ratio_n.detach() - 1).abs().max();
    }
  }
  const at::Tensor tokens = at::full({}, static_cast<double>(log_prob_n.numel()), options);
  result.sums_n = at::stack({result.loss.detach(), tokens, scores.entropy_n.detach().sum(at::kDouble), clipped,
                             old_minus_new, ratio_deviation});
  return result;
}

}  // namespace ringfold
