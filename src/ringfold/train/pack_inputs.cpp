#include "ringfold/train/pack_inputs.h"

#include "ringfold/device/device.h"
#include "ringfold/shard/split.h"

namespace ringfold {
namespace {

// What RL adds to the loss tokens of a pack, as they are met.
class RlTerms {
 public:
  explicit RlTerms(const StepBatch& batch) : batch_(batch) {}

  // `member`: the sample's place in the pack.
  void add(size_t sample, int64_t member, int64_t response_token) {
    const RlFields& rl = *batch_.rl;
    const Sample& source = *batch_.samples[sample];
    const auto index = static_cast<size_t>(batch_.data_indices[sample]);
    const auto token = static_cast<size_t>(response_token);
    old_log_probs_.push_back(rl.old_log_probs[index][token]);
    advantages_.push_back(!rl.token_advantages.empty() ? rl.token_advantages[index][token]
                          : !source.advantages.empty() ? source.advantages[token]
                                                       : rl.advantages[index]);
    if (!rl.ref_log_probs.empty()) ref_log_probs_.push_back(rl.ref_log_probs[index][token]);
    if (!rl.rollout_weights.empty()) rollout_weights_.push_back(rl.rollout_weights[index][token]);
    sequences_.push_back(member);
    shares_.push_back(1.0 / static_cast<double>(batch_.weights.tokens_per_sample[sample]));
  }

  void put(TokenTerms& terms, at::Device device) const {
    const RlFields& rl = *batch_.rl;
    terms.old_log_prob_n = to_device(old_log_probs_, device);
    terms.advantage_n = to_device(advantages_, device);
    if (!rl.ref_log_probs.empty()) terms.ref_log_prob_n = to_device(ref_log_probs_, device);
    if (!rl.rollout_weights.empty()) terms.rollout_weight_n = to_device(rollout_weights_, device);
    terms.sequence_n = to_device(sequences_, device);
    terms.sequence_share_n = to_device(shares_, device);
  }

 private:
  const StepBatch& batch_;
  std::vector<double> old_log_probs_, advantages_, ref_log_probs_, rollout_weights_, shares_;
  std::vector<int64_t> sequences_;
};

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
  std::vector<double> weights;
  RlTerms rl(batch);
  const bool with_rl = batch.rl != nullptr && scored == ScoredRows::kLossTokens;
  for (size_t row = 0; row < rows.size(); ++row) {
    if (targets[row] == kNoTarget) continue;
    const int64_t member = rows[row].sample;
    const size_t sample = members[static_cast<size_t>(member)];
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
    if (with_rl) rl.add(sample, member, response_token);
  }
  inputs.ids_t = to_device(ids, device);
  inputs.rows_n = to_device(picked, device);
  inputs.target_n = to_device(picked_targets, device);
  inputs.terms.weight_n = to_device(weights, device);
  if (with_rl) rl.put(inputs.terms, device);
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
