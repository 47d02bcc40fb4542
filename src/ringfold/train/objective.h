// Token losses. Each is exact for any mix of CP sizes because it is a plain weighted sum over the tokens of this rank.
// With r = exp(log p - old log p), A the advantage (advantages.h) and [lo, hi] = [1 - eps_clip, 1 + eps_clip_high]:
//   sft    -log p(token)
//   ppo, grpo, dr_grpo, rloo, reinforce_plus_plus(_baseline)
//          max(-A r, -A clip(r, lo, hi))          PPO, arXiv:1707.06347; the wider upper side: DAPO, arXiv:2503.14476
//          and, with eps_clip_c, min(-A c, that) where A < 0                              dual clip, arXiv:1912.09729
//   gspo   the same with r = s exp(log p - stopgrad(log p)), s = exp(mean over the sequence of log p - old log p)
//                                                                                              GSPO, arXiv:2507.18071
//   cispo  -stopgrad(clip(r, lo, hi)) A log p                                           MiniMax-M1, arXiv:2506.13585
// times the truncated importance weight against the rollout engine (TIS, use_tis), and added to it
//   + kl_loss_coef KL(p | reference)               k1, k2, k3 (kl.h)            - entropy_coef entropy of the
//   distribution
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <vector>

#include "ringfold/kernels/linear_log_prob.h"
#include "ringfold/train/objective_names.h"
#include "ringfold/train/settings.h"

namespace ringfold {

// One entry a loss token of this rank's pack, fp64; undefined where the settings do not ask for it.
struct TokenTerms {
  at::Tensor weight_n;
  at::Tensor old_log_prob_n;        // RL
  at::Tensor advantage_n;           // RL
  at::Tensor ref_log_prob_n;        // use_kl_loss
  at::Tensor rollout_weight_n;      // use_tis: truncated importance weight
  at::Tensor sequence_n;            // RL: int64, the token's sample as its index in the pack
  at::Tensor sequence_share_n;      // RL: 1 / loss tokens of that sample, whole
  at::Tensor sequence_log_ratio_n;  // objectives that are not token-local: sequence_log_ratio (sequence_ratio.h)

  // The entries [begin, begin + count).
  TokenTerms rows(int64_t begin, int64_t count) const;
  TokenTerms on(at::Device device) const;
};

// What metrics are made of, over tokens, packs and ranks: sums, and in the last place a maximum.
struct LossSums {
  double loss = 0;  // weighted: the reported loss
  double tokens = 0;
  double entropy = 0;
  double clipped = 0;        // ratios outside the clip range on the side that counts
  double old_minus_new = 0;  // approximate KL (k1) numerator
  double policy_loss = 0;    // weighted: the loss without its KL and entropy parts
  double kl_loss = 0;        // weighted KL from the reference, before its coefficient
  double dual_clipped = 0;
  double ratio_deviation = 0;  // max |r - 1|

  // In this order in tensors.
  static constexpr std::array<double LossSums::*, 9> kFields = {
      &LossSums::loss,    &LossSums::tokens,        &LossSums::entropy,
      &LossSums::clipped, &LossSums::old_minus_new, &LossSums::policy_loss,
      &LossSums::kl_loss, &LossSums::dual_clipped,  &LossSums::ratio_deviation};
  static constexpr int64_t kCount = static_cast<int64_t>(kFields.size());
  static constexpr int64_t kMaxima = kCount - 1;  // entries from here on are maxima

  static LossSums from(const double* values);
  std::array<double, kCount> values() const;
  void add(const LossSums& other);
};

struct ObjectiveResult {
  at::Tensor loss;    // scalar fp64, differentiable; 0 without loss tokens, still joined to the graph
  at::Tensor sums_n;  // LossSums, fp64, where the scores are: reading them would stop the host
};

// Of two sums_n, without waiting for the device.
at::Tensor add_sums(const at::Tensor& a_n, const at::Tensor& b_n);
// Adds up the sums of packs, in order; waits for the device.
LossSums read_sums(const std::vector<at::Tensor>& packs);

// The loss of some tokens. A function of these tokens alone: slices of a pack give results that add up to the pack's.
// For an objective that is not token-local, terms.sequence_log_ratio_n carries what the rest of the sequence says.
ObjectiveResult token_loss(const RunSettings& settings, const TokenScores& scores, const TokenTerms& terms);

}  // namespace ringfold
