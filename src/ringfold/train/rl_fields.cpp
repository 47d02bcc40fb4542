#include "ringfold/train/rl_fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "ringfold/base/log.h"
#include "ringfold/train/advantages.h"
#include "ringfold/train/kl.h"
#include "ringfold/train/log_probs.h"
#include "ringfold/train/objective_names.h"

namespace ringfold {
namespace {

using PerToken = std::vector<std::vector<double>>;

PerToken field_of(const Dataset& data, std::vector<double> Sample::*field) {
  PerToken values;
  for (const Sample& sample : data.samples) values.push_back(sample.*field);
  return values;
}

// The first sample whose response has no values.
const Sample* first_missing(const Dataset& data, const PerToken& values) {
  for (size_t i = 0; i < data.samples.size(); ++i) {
    if (data.samples[i].response_length > 0 && values[i].empty()) return &data.samples[i];
  }
  return nullptr;
}

void require_rollout_log_probs(const Dataset& data, const std::string& flag) {
  const Sample* missing = first_missing(data, field_of(data, &Sample::rollout_log_probs));
  if (missing == nullptr) return;
  throw DataError(
      fmt::format("[data] {}:{} (sample {}): {} needs the field `rollout_log_probs`. Hint: give it for every sample, "
                  "or drop the flag",
                  data.file, missing->line, missing->id.value(), flag));
}

PerToken score(Session& session, const DenseModel& model, const Dataset& data, const std::string& what) {
  if (session.is_main()) log::info(fmt::format("ringfold: computing {}", what));
  PerToken values;
  for (SampleScores& scores : score_dataset(session, model, data)) values.push_back(std::move(scores.log_probs));
  return values;
}

void fill_missing(PerToken& values, const PerToken& computed) {
  for (size_t i = 0; i < values.size(); ++i) {
    if (values[i].empty()) values[i] = computed[i];
  }
}

// Old and reference log-probs, with as few passes as that takes.
void add_log_probs(Session& session, DenseModel& model, const Dataset& data, const ReferenceWeights* reference,
                   RlFields& rl) {
  const RunSettings& settings = session.settings;
  if (rl.old_log_probs.empty()) {
    rl.old_log_probs =
        field_of(data, settings.use_rollout_logprobs ? &Sample::rollout_log_probs : &Sample::old_log_probs);
  }
  const bool wanted = needs_reference(settings);
  if (!wanted) rl.ref_log_probs.clear();
  if (wanted && rl.ref_log_probs.empty()) {
    rl.ref_log_probs = reference != nullptr ? PerToken(data.samples.size()) : field_of(data, &Sample::ref_log_probs);
  }
  const bool old_pass = first_missing(data, rl.old_log_probs) != nullptr;
  const bool ref_pass = wanted && first_missing(data, rl.ref_log_probs) != nullptr;
  PerToken computed;
  if (old_pass || (ref_pass && reference == nullptr)) {
    computed = score(session, model, data, old_pass ? "old log-probs" : "reference log-probs");
  }
  if (old_pass) fill_missing(rl.old_log_probs, computed);
  if (!ref_pass) return;
  if (reference != nullptr) {
    reference->run_with(model, [&] { computed = score(session, model, data, "reference log-probs"); });
  }
  fill_missing(rl.ref_log_probs, computed);
}

// exp(old - rollout) within [tis_clip_low, tis_clip]: what the rollout engine's numerics did to the sampling.
PerToken truncated_weights(const RunSettings& settings, const Dataset& data, const PerToken& old_log_probs) {
  PerToken weights;
  for (size_t i = 0; i < data.samples.size(); ++i) {
    std::vector<double>& mine = weights.emplace_back();
    for (size_t t = 0; t < old_log_probs[i].size(); ++t) {
      const double difference = std::clamp(old_log_probs[i][t] - data.samples[i].rollout_log_probs[t], -20.0, 20.0);
      mine.push_back(std::clamp(std::exp(difference), settings.tis_clip_low, settings.tis_clip));
    }
  }
  return weights;
}

PerToken kl_rewards(const RunSettings& settings, const RlFields& rl) {
  PerToken kl;
  for (size_t i = 0; i < rl.old_log_probs.size(); ++i) {
    std::vector<double>& mine = kl.emplace_back();
    for (size_t t = 0; t < rl.old_log_probs[i].size(); ++t) {
      mine.push_back(kl_estimate(kl_type_as_reward(settings), rl.old_log_probs[i][t], rl.ref_log_probs[i][t]));
    }
  }
  return kl;
}

}  // namespace

RlFields rl_fields(Session& session, DenseModel& model, const Dataset& data, const ReferenceWeights* reference,
                   RlFields resumed) {
  const RunSettings& settings = session.settings;
  if (settings.use_rollout_logprobs) require_rollout_log_probs(data, "--use-rollout-logprobs");
  if (settings.use_tis) require_rollout_log_probs(data, "--use-tis");
  if (settings.kl_coef > 0 && has_own_advantages(data)) {
    throw DataError(
        fmt::format("[data] {}: --kl-coef {} is a part of the reward, and the field `advantages` is given for every "
                    "sample. Hint: drop "
                    "one of them, or use --use-kl-loss",
                    data.file, settings.kl_coef));
  }
  compute_advantages(settings, data);  // what the data lack is told before a pass is spent on them

  RlFields rl = std::move(resumed);
  add_log_probs(session, model, data, reference, rl);
  if (settings.use_tis) rl.rollout_weights = truncated_weights(settings, data, rl.old_log_probs);
  Advantages advantages =
      compute_advantages(settings, data, settings.kl_coef > 0 ? kl_rewards(settings, rl) : PerToken{});
  rl.advantages = std::move(advantages.per_sample);
  rl.token_advantages = std::move(advantages.per_token);
  if (session.is_main() && advantages.groups > 0) {
    log::info(fmt::format("ringfold: {} groups ({} of one sample, {} with equal rewards: advantage 0)",
                          advantages.groups, advantages.single_groups, advantages.flat_groups));
  }
  return rl;
}

}  // namespace ringfold
