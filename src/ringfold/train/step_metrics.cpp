// What a step's report says in the terms that users compare (spec 6, 11): real tokens, squared sample lengths.
#include <algorithm>
#include <cmath>

#include "ringfold/train/step.h"

namespace ringfold {
namespace {

void add_plan_figures(const Plan& plan, StepMetrics& metrics) {
  double use = 0;
  double ranks = 0;
  for (const MicroStep& micro_step : plan.micro_steps) {
    for (const PlannedGroup& group : micro_step.groups) {
      ++metrics.cp_histogram[group.cp_size.value()];
      if (plan.budget > 0) use += static_cast<double>(group.padded_tokens.front()) / static_cast<double>(plan.budget);
      ranks += 1;
    }
  }
  metrics.cp_token_share = token_share_by_size(plan);
  metrics.micro_steps = static_cast<int64_t>(plan.micro_steps.size());
  metrics.budget_use = ranks > 0 ? use / ranks : 0;
  metrics.padding_waste = plan.summary.padding_waste;
}

// Figures of the step's samples, which every rank holds whole: nothing is to be reduced.
void add_rollout_figures(const RunSettings& settings, const StepBatch& batch, StepMetrics& metrics) {
  double rewards = 0, rewarded = 0, length = 0, longest = 0, truncated = 0, told = 0;
  double gap = 0, compared = 0, weight = 0, weights = 0, clipped = 0;
  for (size_t i = 0; i < batch.samples.size(); ++i) {
    const Sample& sample = *batch.samples[i];
    rewards += sample.reward.value_or(0);
    rewarded += sample.reward.has_value() ? 1 : 0;
    const auto response = static_cast<double>(sample.response_length);
    length += response;
    longest = std::max(longest, response);
    truncated += sample.truncated.value_or(false) ? 1 : 0;
    told += sample.truncated.has_value() ? 1 : 0;
    const auto index = static_cast<size_t>(batch.data_indices[i]);
    for (int64_t t = 0; t < sample.response_length; ++t) {
      if (sample.loss_mask[static_cast<size_t>(sample.response_begin() + t)] == 0) continue;
      const auto token = static_cast<size_t>(t);
      if (!sample.rollout_log_probs.empty()) {
        gap += std::abs(batch.rl->old_log_probs[index][token] - sample.rollout_log_probs[token]);
        compared += 1;
      }
      if (!batch.rl->rollout_weights.empty()) {
        const double w = batch.rl->rollout_weights[index][token];
        weight += w;
        weights += 1;
        clipped += w <= settings.tis_clip_low || w >= settings.tis_clip ? 1 : 0;
      }
    }
  }
  const auto count = static_cast<double>(batch.samples.size());
  if (rewarded > 0) metrics.reward_mean = rewards / rewarded;
  if (told > 0) metrics.truncated_ratio = truncated / told;
  if (compared > 0) metrics.train_rollout_logprob_abs_diff = gap / compared;
  if (weights > 0) {
    metrics.tis_mean = weight / weights;
    metrics.tis_clip_fraction = clipped / weights;
  }
  metrics.response_length_mean = length / count;
  metrics.response_length_max = longest;
}

}  // namespace

std::map<int, double> token_share_by_size(const Plan& plan) {
  std::map<int, double> shares;
  const std::vector<double>& by_level = plan.summary.cp_token_share;
  for (size_t l = 0; l < by_level.size(); ++l) {
    if (by_level[l] > 0) shares[1 << l] = by_level[l];
  }
  return shares;
}

StepMetrics step_metrics(const Session& session, const ModelConfig& config, const StepBatch& batch,
                         const StepReport& report) {
  StepMetrics metrics;
  const LossSums& sums = report.sums;
  const double tokens = std::max(1.0, sums.tokens);
  metrics.loss = sums.loss;
  metrics.loss_tokens = batch.weights.loss_tokens;
  metrics.grad_norm = report.grad_norm;
  for (const Sample* sample : batch.samples) metrics.samples.push_back(sample->id.value());
  metrics.tokens = report.plan.summary.tokens;
  metrics.sum_squared_tokens = report.plan.summary.sum_squared_tokens;
  add_plan_figures(report.plan, metrics);
  for (const double busy : report.busy_ms) metrics.idle_share.push_back(std::max(0.0, 1 - busy / report.step_ms));
  metrics.exposed_comm_ms = report.exposed_ms;
  metrics.entropy = sums.entropy / tokens;
  const RunSettings& settings = session.settings;
  if (settings.objective != Objective::kSft && batch.rl != nullptr) {
    metrics.policy_loss = sums.policy_loss;
    if (settings.use_kl_loss) metrics.kl_loss = sums.kl_loss;
    metrics.ratio_max_dev = sums.ratio_deviation;
    metrics.clip_fraction = sums.clipped / tokens;
    if (settings.eps_clip_c > 0) metrics.dual_clip_fraction = sums.dual_clipped / tokens;
    metrics.approx_kl = sums.old_minus_new / tokens;
    add_rollout_figures(settings, batch, metrics);
  }
  metrics.plan_ms = report.plan_ms;
  metrics.step_ms = report.step_ms;
  const double seconds = report.step_ms / 1e3;
  metrics.tokens_per_s = static_cast<double>(metrics.tokens) / seconds;
  metrics.tflops_per_gpu =
      config.train_flops(metrics.tokens, metrics.sum_squared_tokens) / seconds / session.env.world_size / 1e12;
  metrics.peak_memory_bytes = report.peak_memory_bytes;
  return metrics;
}

}  // namespace ringfold
