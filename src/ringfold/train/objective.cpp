#include "ringfold/train/objective.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "ringfold/base/error.h"
#include "ringfold/device/device.h"
#include "ringfold/train/kl.h"

namespace ringfold {
namespace {

// The clamp keeps exp finite when a policy has drifted absurdly far.
constexpr double kLargestLogRatio = 20;

// The policy's part of the loss by token, and what is counted about it.
struct PolicyTerms {
  at::Tensor loss_n;
  at::Tensor ratio_n;         // without gradient
  at::Tensor clipped_n;       // bool
  at::Tensor dual_clipped_n;  // bool; undefined without dual clip
};

double clip_low(const RunSettings& settings) {
  return 1 - settings.eps_clip;
}
double clip_high(const RunSettings& settings) {
  return 1 + (settings.eps_clip_high > 0 ? settings.eps_clip_high : settings.eps_clip);
}

PolicyTerms clipped_surrogate(const RunSettings& settings, const at::Tensor& log_ratio_n,
                              const at::Tensor& advantage_n) {
  PolicyTerms policy;
  const at::Tensor ratio_n = log_ratio_n.clamp(-kLargestLogRatio, kLargestLogRatio).exp();
  const at::Tensor plain_n = -advantage_n * ratio_n;
  const at::Tensor bounded_n = -advantage_n * ratio_n.clamp(clip_low(settings), clip_high(settings));
  policy.loss_n = at::maximum(plain_n, bounded_n);
  policy.ratio_n = ratio_n.detach();
  policy.clipped_n = bounded_n.gt(plain_n);
  if (settings.eps_clip_c > 0) {
    const at::Tensor limit_n = -advantage_n * settings.eps_clip_c;
    policy.dual_clipped_n = advantage_n.lt(0).logical_and(policy.loss_n.gt(limit_n));
    policy.loss_n = at::where(policy.dual_clipped_n, limit_n, policy.loss_n);
  }
  return policy;
}

PolicyTerms clipped_weight(const RunSettings& settings, const at::Tensor& log_prob_n, const TokenTerms& terms) {
  PolicyTerms policy;
  const at::Tensor log_ratio_n = log_prob_n.detach() - terms.old_log_prob_n;
  policy.ratio_n = log_ratio_n.clamp(-kLargestLogRatio, kLargestLogRatio).exp();
  const at::Tensor bounded_n = policy.ratio_n.clamp(clip_low(settings), clip_high(settings));
  policy.loss_n = -bounded_n * terms.advantage_n * log_prob_n;
  policy.clipped_n = bounded_n.ne(policy.ratio_n);
  return policy;
}

PolicyTerms policy_terms(const RunSettings& settings, const at::Tensor& log_prob_n, const TokenTerms& terms) {
  if (settings.objective == Objective::kCispo) return clipped_weight(settings, log_prob_n, terms);
  if (is_token_local(settings.objective)) {
    return clipped_surrogate(settings, log_prob_n - terms.old_log_prob_n, terms.advantage_n);
  }
  RINGFOLD_ASSERT(terms.sequence_log_ratio_n.defined(), "a sequence objective needs the ratio of the sequences");
  // The value of the sequence's ratio, the gradient of each token's own log-prob.
  return clipped_surrogate(settings, terms.sequence_log_ratio_n + (log_prob_n - log_prob_n.detach()),
                           terms.advantage_n);
}

}  // namespace

TokenTerms TokenTerms::rows(int64_t begin, int64_t count) const {
  const auto of = [&](const at::Tensor& x_n) { return x_n.defined() ? x_n.narrow(0, begin, count) : x_n; };
  return {of(weight_n),         of(old_log_prob_n), of(advantage_n),      of(ref_log_prob_n),
          of(rollout_weight_n), of(sequence_n),     of(sequence_share_n), of(sequence_log_ratio_n)};
}

LossSums LossSums::from(const double* values) {
  LossSums sums;
  for (size_t i = 0; i < kFields.size(); ++i) sums.*kFields[i] = values[i];
  return sums;
}

std::array<double, LossSums::kCount> LossSums::values() const {
  std::array<double, kCount> values{};
  for (size_t i = 0; i < kFields.size(); ++i) values[i] = this->*kFields[i];
  return values;
}

void LossSums::add(const LossSums& other) {
  for (size_t i = 0; i < kFields.size(); ++i) {
    double& mine = this->*kFields[i];
    const double theirs = other.*kFields[i];
    mine = static_cast<int64_t>(i) < kMaxima ? mine + theirs : std::max(mine, theirs);
  }
}

at::Tensor add_sums(const at::Tensor& a_n, const at::Tensor& b_n) {
  at::Tensor total_n = a_n + b_n;
  at::Tensor maxima_n = total_n.slice(0, LossSums::kMaxima);
  at::maximum_out(maxima_n, a_n.slice(0, LossSums::kMaxima), b_n.slice(0, LossSums::kMaxima));
  return total_n;
}

TokenTerms TokenTerms::on(at::Device device) const {
  const auto of = [&](const at::Tensor& x_n) { return x_n.defined() ? to_device(x_n, device) : x_n; };
  return {of(weight_n),         of(old_log_prob_n), of(advantage_n),      of(ref_log_prob_n),
          of(rollout_weight_n), of(sequence_n),     of(sequence_share_n), of(sequence_log_ratio_n)};
}

LossSums read_sums(const std::vector<at::Tensor>& packs) {
  LossSums total;
  if (packs.empty()) return total;
  const at::Tensor all = at::stack(packs).cpu();
  for (int64_t i = 0; i < all.size(0); ++i) total.add(LossSums::from(all[i].const_data_ptr<double>()));
  return total;
}

ObjectiveResult token_loss(const RunSettings& settings, const TokenScores& scores, const TokenTerms& terms) {
  // fp64 from here on: a handful of elementwise operations on one number a token, and the sum is what users compare.
  const at::Tensor log_prob_n = scores.log_prob_n.to(at::kDouble);
  const auto options = log_prob_n.options().requires_grad(false);
  const at::Tensor none = at::zeros({}, options);
  ObjectiveResult result;
  at::Tensor clipped = none, old_minus_new = none, kl = none, dual_clipped = none, ratio_deviation = none;
  if (settings.objective == Objective::kSft) {
    result.loss = (terms.weight_n * log_prob_n).sum().neg();
  } else {
    PolicyTerms policy = policy_terms(settings, log_prob_n, terms);
    if (settings.use_tis) policy.loss_n = policy.loss_n * terms.rollout_weight_n;
    result.loss = (terms.weight_n * policy.loss_n).sum();
    if (log_prob_n.numel() > 0) {
      clipped = policy.clipped_n.sum().to(at::kDouble);
      if (policy.dual_clipped_n.defined()) dual_clipped = policy.dual_clipped_n.sum().to(at::kDouble);
      old_minus_new = (terms.old_log_prob_n - log_prob_n.detach()).sum();
      ratio_deviation = (policy.ratio_n - 1).abs().max();
    }
  }
  const at::Tensor policy_loss = result.loss.detach();
  if (settings.use_kl_loss) {
    const at::Tensor kl_loss =
        (terms.weight_n * kl_estimate(kl_type_as_loss(settings), log_prob_n, terms.ref_log_prob_n)).sum();
    kl = kl_loss.detach();
    if (settings.kl_loss_coef != 0) result.loss = result.loss + settings.kl_loss_coef * kl_loss;
  }
  const at::Tensor entropy_n = scores.entropy_n.to(at::kDouble);
  if (settings.entropy_coef != 0) {
    result.loss = result.loss - settings.entropy_coef * (terms.weight_n * entropy_n).sum();
  }
  const at::Tensor tokens = at::full({}, static_cast<double>(log_prob_n.numel()), options);
  result.sums_n = at::stack({result.loss.detach(), tokens, entropy_n.detach().sum(), clipped, old_minus_new,
                             policy_loss, kl, dual_clipped, ratio_deviation});
  return result;
}

}  // namespace ringfold
