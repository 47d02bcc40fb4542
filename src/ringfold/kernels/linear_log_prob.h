// Linear head + log-softmax + gather, fused in chunks of rows, so that the logits of only one chunk exist at a time
// (forward and backward). Legend: n rows, h hidden, v vocabulary.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>

namespace ringfold {

struct TokenScores {
  at::Tensor log_prob_n;  // log softmax(hidden W^T / temperature)[target]; differentiable
  at::Tensor entropy_n;   // of the same distribution, in nats; differentiable
  at::Tensor greedy_n;    // bool: no logit is larger than the target's; not differentiable
};

struct LinearLogProbOptions {
  int64_t chunk_rows = 1024;
  double temperature = 1.0;
};

// Half precision gives logits, scores and weight gradients in fp32 (GPU only).
// hidden (n, h), weight (v, h), target (n) int64 in [0, v). n = 0 gives empty results that still join the backward.
// Gradients: d log_prob = onehot - p; d entropy = -p (log p + entropy). Logits are recomputed in the backward.
TokenScores linear_log_prob(const at::Tensor& hidden_nh, const at::Tensor& weight_vh, const at::Tensor& target_n,
                            const LinearLogProbOptions& options);

// A loss that is a sum over rows. Called once a chunk, in order, with the scores of rows [begin, begin + n), which
// require gradients; returns a scalar of theirs.
using ChunkLoss = std::function<at::Tensor(const TokenScores& scores, int64_t begin)>;

// Gradient of the sum of the chunks' losses with respect to hidden (n, h), returned; that of the weight is added to
// dweight (v, h), of the scores' type. Chunk by chunk while its logits exist, so that three products do where
// linear_log_prob and its backward need four. Follows no grad mode: call it with detached tensors.
at::Tensor linear_loss_gradients(const at::Tensor& hidden_nh, const at::Tensor& weight_vh, const at::Tensor& target_n,
                                 const LinearLogProbOptions& options, const ChunkLoss& loss,
                                 const at::Tensor& dweight_vh);

}  // namespace ringfold
