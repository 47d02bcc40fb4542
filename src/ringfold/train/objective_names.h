// Names of objectives and what follows from one: estimator, aggregation. No torch: the command line reads it too.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "ringfold/train/settings.h"

namespace ringfold {

// By enumerator.
inline const std::vector<std::string>& objective_names() {
  static const std::vector<std::string> names = {
      "sft", "ppo", "grpo", "dr_grpo", "rloo", "reinforce_plus_plus", "reinforce_plus_plus_baseline", "gspo", "cispo"};
  return names;
}
inline const std::string& name_of(Objective objective) {
  return objective_names()[static_cast<size_t>(objective)];
}

// Without "by the objective".
inline const std::vector<std::string>& advantage_estimator_names() {
  static const std::vector<std::string> names = {
      "data", "grpo", "dr_grpo", "rloo", "reinforce_plus_plus", "reinforce_plus_plus_baseline"};
  return names;
}

// Whether the loss of a token needs nothing but that token's own scores and terms. The others need the log-probs of the
// whole sequence first (sequence_ratio.h).
constexpr bool is_token_local(Objective objective) {
  return objective != Objective::kGspo;
}

constexpr AdvantageEstimator estimator_of(const RunSettings& settings) {
  if (settings.advantage_estimator != AdvantageEstimator::kByObjective) return settings.advantage_estimator;
  switch (settings.objective) {
    case Objective::kDrGrpo:
      return AdvantageEstimator::kDrGrpo;
    case Objective::kRloo:
      return AdvantageEstimator::kRloo;
    case Objective::kReinforcePlusPlus:
      return AdvantageEstimator::kReinforcePlusPlus;
    case Objective::kReinforcePlusPlusBaseline:
      return AdvantageEstimator::kReinforcePlusPlusBaseline;
    case Objective::kGrpo:
    case Objective::kGspo:
    case Objective::kCispo:
      return AdvantageEstimator::kGrpo;
    default:
      return AdvantageEstimator::kData;  // sft has none; ppo's come from a critic, which is not built
  }
}

// The aggregation that the paper of an objective uses, where it is a part of the method.
constexpr LossAggregation default_aggregation(Objective objective) {
  if (objective == Objective::kDrGrpo) return LossAggregation::kDrGrpo;
  if (objective == Objective::kGspo) return LossAggregation::kSeqMeanTokenMean;
  return LossAggregation::kTokenMean;
}

constexpr bool needs_reference(const RunSettings& settings) {
  return settings.use_kl_loss || settings.kl_coef > 0;
}

}  // namespace ringfold
