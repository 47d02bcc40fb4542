// Runs one pack through a DenseModel on one rank: loss, log-probs, hidden states. For tests.
// Legend: t local tokens, n rows with a target, h hidden.
#pragma once

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>

#include <memory>
#include <span>
#include <vector>

#include "ringfold/kernels/linear_log_prob.h"
#include "ringfold/models/qwen3/model.h"
#include "ringfold/shard/split.h"

namespace ringfold {

struct Pack {
  std::vector<std::vector<int64_t>> sequences;
  std::vector<std::vector<double>> weights;  // of each token's -log p, given the tokens before it; entry 0 unused

  std::vector<int64_t> lengths() const {
    std::vector<int64_t> out;
    for (const auto& sequence : sequences) out.push_back(static_cast<int64_t>(sequence.size()));
    return out;
  }
};

struct PackRun {
  at::Tensor loss;  // weighted sum over the rows of this rank; joins the backward also without such rows
  at::Tensor hidden_th;
  at::Tensor log_prob_n;
  std::vector<RowOrigin> origins;  // of the n rows: the row predicts the token behind `position`
};

inline at::Tensor to_tensor(const std::vector<int64_t>& values) {
  return at::tensor(at::ArrayRef<int64_t>(values), at::TensorOptions(at::kLong));
}

inline PackRun run_pack(const DenseModel& model, const Pack& pack, const CpContextPtr& context,
                        Recompute recompute = Recompute::kNone, int64_t pad_id = 0) {
  const PackLayout& layout = context->layout;
  std::vector<std::span<const int64_t>> tokens(pack.sequences.begin(), pack.sequences.end());
  const std::vector<int64_t> ids = split_i64(layout, tokens, pad_id), targets = split_targets(layout, tokens);
  const std::vector<RowOrigin> origins = row_origins(layout);
  std::vector<int64_t> rows, row_targets;
  std::vector<double> weights;
  PackRun run;
  for (size_t row = 0; row < targets.size(); ++row) {
    if (targets[row] == kNoTarget) continue;
    rows.push_back(static_cast<int64_t>(row));
    row_targets.push_back(targets[row]);
    run.origins.push_back(origins[row]);
    weights.push_back(
        pack.weights[static_cast<size_t>(origins[row].sample)][static_cast<size_t>(origins[row].position) + 1]);
  }
  run.hidden_th = model.forward(to_tensor(ids), context, recompute);
  const at::Tensor weight_n = at::tensor(at::ArrayRef<double>(weights), run.hidden_th.options());
  const TokenScores scores = linear_log_prob(run.hidden_th.index_select(0, to_tensor(rows)), model.head_weight(),
                                             to_tensor(row_targets), {.chunk_rows = 50});
  run.log_prob_n = scores.log_prob_n;
  run.loss = -(scores.log_prob_n * weight_n).sum();
  return run;
}

inline CpContextPtr single_rank_context(const Pack& pack) {
  return std::make_shared<CpContext>(CpGroup{}, PackLayout(pack.lengths(), 1, 0));
}

// Gradients accumulate into views of one flat buffer, as the trainer has it.
inline at::Tensor preset_flat_gradient(DenseModel& model) {
  int64_t total = 0;
  for (const Parameter& parameter : model.parameters()) total += parameter.value.numel();
  const at::Tensor flat = at::zeros({total}, model.head_weight().options().requires_grad(false));
  int64_t at = 0;
  for (Parameter& parameter : model.parameters()) {
    const int64_t count = parameter.value.numel();
    parameter.value.mutable_grad() = flat.slice(0, at, at + count).view(parameter.value.sizes());
    at += count;
  }
  return flat;
}

}  // namespace ringfold
