#include "ringfold/train/objective_check.h"

#include <fmt/format.h>

#include "ringfold/base/error.h"
#include "ringfold/train/objective_names.h"

namespace ringfold {
namespace {

// SFT has no ratio, no reward and no reference.
void refuse_rl_flags(const RunSettings& s) {
  for (const auto& [flag, given] :
       {std::pair{"--use-rollout-logprobs", s.use_rollout_logprobs},
        {"--use-tis", s.use_tis},
        {"--use-kl-loss", s.use_kl_loss},
        {"--kl-coef", s.kl_coef != 0},
        {"--eps-clip-c", s.eps_clip_c != 0},
        {"--normalize-advantages", s.normalize_advantages},
        {"--advantage-estimator", s.advantage_estimator != AdvantageEstimator::kByObjective}}) {
    if (!given) continue;
    throw UsageError(
        fmt::format("[settings] {} has no meaning with --objective sft. Hint: drop it, or use --objective grpo", flag));
  }
}

void check_kl(const RunSettings& s) {
  if (s.kl_loss_coef != 0 && !s.use_kl_loss) {
    throw UsageError(fmt::format("[settings] --kl-loss-coef {} needs --use-kl-loss. Hint: add it", s.kl_loss_coef));
  }
  if (s.kl_loss_coef != 0 && s.kl_coef != 0) {
    throw UsageError(
        fmt::format("[settings] --kl-loss-coef {} and --kl-coef {}: the KL is a loss or a reward, not both. Hint: "
                    "set one of them to 0",
                    s.kl_loss_coef, s.kl_coef));
  }
  if (!s.ref_load.empty() && !needs_reference(s)) {
    throw UsageError(fmt::format(
        "[settings] --ref-load {} has no use without a KL. Hint: add --use-kl-loss or --kl-coef, or drop it",
        s.ref_load));
  }
}

}  // namespace

void check_objective(const RunSettings& s) {
  if (s.objective == Objective::kSft) refuse_rl_flags(s);
  check_kl(s);
  if (s.eps_clip_c != 0 && s.eps_clip_c <= 1) {
    throw UsageError(
        fmt::format("[settings] --eps-clip-c: got {}, expected more than 1 (3 is usual), or 0 for none", s.eps_clip_c));
  }
  if (s.eps_clip_c != 0 && s.objective == Objective::kCispo) {
    throw UsageError(
        fmt::format("[settings] --eps-clip-c {} has no meaning with --objective cispo. Hint: drop it; the weight "
                    "of a token is bounded by --eps-clip-high",
                    s.eps_clip_c));
  }
  if (s.use_tis && s.use_rollout_logprobs) {
    throw UsageError(
        "[settings] --use-tis and --use-rollout-logprobs: got both, expected one. Hint: the weights compare recomputed "
        "old log-probs with those of the rollout");
  }
  if (s.use_tis && s.tis_clip_low > s.tis_clip) {
    throw UsageError(
        fmt::format("[settings] --tis-clip-low: got {}, expected at most --tis-clip {}", s.tis_clip_low, s.tis_clip));
  }
  if (s.loss_scale_factor > 0 && s.loss_aggregation != LossAggregation::kDrGrpo) {
    throw UsageError(fmt::format(
        "[settings] --loss-scale-factor {} belongs to --loss-aggregation dr-grpo. Hint: add that, or drop it",
        s.loss_scale_factor));
  }
}

}  // namespace ringfold
