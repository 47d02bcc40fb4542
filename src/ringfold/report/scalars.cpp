// Which metrics TensorBoard shows, and under which names (docs/reference/metrics.md).
#include <fmt/format.h>

#include "ringfold/report/event_file.h"

namespace ringfold {

std::vector<Scalar> scalars_of(const StepMetrics& metrics) {
  std::vector<Scalar> scalars;
  const auto add = [&scalars](std::string tag, auto value) {
    scalars.push_back({std::move(tag), static_cast<double>(value)});
  };
  const auto add_if = [&add](const char* tag, const std::optional<double>& value) {
    if (value) add(tag, *value);
  };
  add("train/loss", metrics.loss);
  add("train/grad_norm", metrics.grad_norm);
  add("train/lr", metrics.lr);
  add("train/loss_tokens", metrics.loss_tokens);
  add("train/entropy", metrics.entropy);
  add("train/epoch", metrics.epoch);
  add_if("rl/policy_loss", metrics.policy_loss);
  add_if("rl/kl_loss", metrics.kl_loss);
  add_if("rl/reward_mean", metrics.reward_mean);
  add_if("rl/ratio_max_dev", metrics.ratio_max_dev);
  add_if("rl/clip_fraction", metrics.clip_fraction);
  add_if("rl/dual_clip_fraction", metrics.dual_clip_fraction);
  add_if("rl/approx_kl", metrics.approx_kl);
  add_if("rl/train_rollout_logprob_abs_diff", metrics.train_rollout_logprob_abs_diff);
  add_if("rl/tis_mean", metrics.tis_mean);
  add_if("rl/tis_clip_fraction", metrics.tis_clip_fraction);
  add_if("response/length_mean", metrics.response_length_mean);
  add_if("response/length_max", metrics.response_length_max);
  add_if("response/truncated_ratio", metrics.truncated_ratio);
  add("speed/tokens_per_s", metrics.tokens_per_s);
  add("speed/tflops_per_gpu", metrics.tflops_per_gpu);
  add_if("speed/mfu", metrics.mfu);
  add("time/step_ms", metrics.step_ms);
  add("time/plan_ms", metrics.plan_ms);
  add("time/exposed_comm_ms", metrics.exposed_comm_ms);
  add("pack/tokens", metrics.tokens);
  add("pack/micro_steps", metrics.micro_steps);
  add("pack/budget_use", metrics.budget_use);
  add("pack/padding_waste", metrics.padding_waste);
  for (const auto& [size, packs] : metrics.cp_histogram) add(fmt::format("cp_packs/size_{}", size), packs);
  for (const auto& [size, share] : metrics.cp_token_share) add(fmt::format("cp_token_share/size_{}", size), share);
  for (size_t rank = 0; rank < metrics.idle_share.size(); ++rank) {
    add(fmt::format("idle_share/rank_{}", rank), metrics.idle_share[rank]);
  }
  add("memory/peak_bytes", metrics.peak_memory_bytes);
  return scalars;
}

std::vector<Scalar> scalars_of(const RolloutMetrics& metrics) {
  return {{"rollout/reward_mean", metrics.reward_mean},
          {"rollout/reward_std", metrics.reward_std},
          {"rollout/response_length_mean", metrics.response_length_mean},
          {"rollout/truncated_ratio", metrics.truncated_ratio},
          {"rollout/dropped_groups", static_cast<double>(metrics.dropped_groups)},
          {"rollout/generate_ms", metrics.generate_ms},
          {"rollout/reward_ms", metrics.reward_ms},
          {"rollout/log_probs_ms", metrics.log_probs_ms},
          {"rollout/train_ms", metrics.train_ms},
          {"rollout/total_ms", metrics.total_ms},
          {"rollout/train_tokens_per_s", metrics.train_tokens_per_s},
          {"rollout/end_to_end_tokens_per_s", metrics.end_to_end_tokens_per_s}};
}

std::vector<Scalar> scalars_of(const EvalMetrics& metrics) {
  return {{"eval/loss", metrics.loss}, {"eval/accuracy", metrics.accuracy}};
}

}  // namespace ringfold
