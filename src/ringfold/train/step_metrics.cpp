// What a step's report says in the terms that users compare (spec 6, 11): real tokens, squared sample lengths.
#include <algorithm>

#include "ringfold/train/step.h"

namespace ringfold {
namespace {

void add_plan_figures(const Plan& plan, StepMetrics& metrics) {
  double use = 0;
  double ranks = 0;
  for (const MicroStep& micro_step : plan.micro_steps) {
    for (const PlannedGroup& group : micro_step.groups) {
      const int c = group.cp_size.value();
      ++metrics.cp_histogram[c];
      for (const int64_t tokens : group.real_tokens) {
        metrics.cp_token_share[c] += static_cast<double>(tokens) / static_cast<double>(plan.summary.tokens);
      }
      if (plan.budget > 0) use += static_cast<double>(group.padded_tokens.front()) / static_cast<double>(plan.budget);
      ranks += 1;
    }
  }
  metrics.micro_steps = static_cast<int64_t>(plan.micro_steps.size());
  metrics.budget_use = ranks > 0 ? use / ranks : 0;
  metrics.padding_waste = plan.summary.padding_waste;
}

}  // namespace

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
  if (session.settings.objective == Objective::kGrpo) {
    metrics.ratio_max_dev = sums.ratio_deviation;
    metrics.clip_fraction = sums.clipped / tokens;
    metrics.approx_kl = sums.old_minus_new / tokens;
    double reward = 0, rewarded = 0;
    for (const Sample* sample : batch.samples) {
      reward += sample->reward.value_or(0);
      rewarded += sample->reward.has_value() ? 1 : 0;
    }
    if (rewarded > 0) metrics.reward_mean = reward / rewarded;
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
