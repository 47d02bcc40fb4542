#include "ringfold/train/pack_inputs.h"

#include "ringfold/device/device.h"
#include "ringfold/shard/split.h"

namespace ringfold {
namespace {

double advantage_of(const StepBatch& batch, size_t sample, int64_t response_token) {
  const Sample& source = *batch.samples[sample];
  if (!source.advantages.empty()) return source.advantages[static_cast<size_t>(response_token)];
  return batch.rl->advantages[static_cast<size_t>(batch.data_indices[sample])];
}

double old_log_prob_of(const StepBatch& batch, size_t sample, int64_t response_token) {
  const auto& values = batch.rl->old_log_probs[static_cast<size_t>(batch.data_indices[sample])];
  return values[static_cast<size_t>(response_token)];
}

}  // namespace

PackInputs pack_inputs(const StepBatch& batch, const PlannedGroup& group, const PackLayout& layout, ScoredRows scored,
                       at::Device device) {
  std::vector<size_t> members;
  std::vector<std::span<const int64_t>> tokens;
  for (const SampleId id : group.samples) {
    members.push_back(batch.position(id));
    tokens.emplace_back(batch.samples[members.back()]->tokens);
  }
  const std::vector<int64_t> ids = split_i64(layout, tokens, 0);
  const std::vector<int64_t> targets = split_targets(layout, tokens);
  const std::vector<RowOrigin> rows = row_origins(layout);

  PackInputs inputs;
  std::vector<int64_t> picked, picked_targets;
  std::vector<double> weights, old_log_probs, advantages;
  for (size_t row = 0; row < rows.size(); ++row) {
    if (targets[row] == kNoTarget) continue;
    const size_t sample = members[static_cast<size_t>(rows[row].sample)];
    const Sample& source = *batch.samples[sample];
    const int64_t predicted = rows[row].position + 1;  // the token this row scores
    const int64_t response_token = predicted - source.response_begin();
    const bool wanted =
        scored == ScoredRows::kLossTokens ? source.loss_mask[static_cast<size_t>(predicted)] != 0 : response_token >= 0;
    if (!wanted) continue;
    picked.push_back(static_cast<int64_t>(row));
    picked_targets.push_back(targets[row]);
    inputs.origins.push_back({sample, response_token});
    if (scored == ScoredRows::kLossTokens) weights.push_back(batch.weights.per_sample[sample]);
    if (batch.rl != nullptr) {
      old_log_probs.push_back(old_log_prob_of(batch, sample, response_token));
      advantages.push_back(advantage_of(batch, sample, response_token));
    }
  }
  inputs.ids_t = to_device(ids, device);
  inputs.rows_n = to_device(picked, device);
  inputs.target_n = to_device(picked_targets, device);
  inputs.terms = {to_device(weights, device), to_device(old_log_probs, device), to_device(advantages, device)};
  return inputs;
}

PackInputs on_device(const PackInputs& host, at::Device device) {
  return {to_device(host.ids_t, device),
          to_device(host.rows_n, device),
          to_device(host.target_n, device),
          host.terms.on(device),
          {}};
}

}  // namespace ringfold
