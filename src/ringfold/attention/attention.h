// Causal self-attention of a pack under context parallelism: each sample sees only itself, whatever the group size.
// Schemes: ring (KV as one flat buffer travels round, partial results merged by log-sum-exp, dKV travels home),
// all-gather-KV, and all-to-all (each rank has all rows of some heads). Steps and bytes of each:
// docs/algorithms_attention.md. fp32 and fp64.
// Legend: t local tokens (rows of this rank), h query heads, g KV heads (h a multiple of g), d head dim.
#pragma once

#include <ATen/core/Tensor.h>

#include "ringfold/kernels/attention.h"
#include "ringfold/shard/cp_context.h"

namespace ringfold {

// q, k and v in the context's local row order; returns the output in the same order. Differentiable; the autograd node
// keeps the context. Rows of pads are never read, forward or backward, whatever they hold; their output and gradients
// are 0. `phase` is kForward, or kRecompute for a second forward inside a backward (the exchange key says so).
at::Tensor cp_attention(const at::Tensor& q_thd, const at::Tensor& k_tgd, const at::Tensor& v_tgd,
                        const CpContextPtr& context, int layer, double scale, Phase phase = Phase::kForward);

// Forward with its log-sum-exp (-inf for pads), without autograd.
struct AttentionWithLse {
  at::Tensor out_thd;
  at::Tensor lse_ht;
};
AttentionWithLse cp_attention_forward(const at::Tensor& q_thd, const at::Tensor& k_tgd, const at::Tensor& v_tgd,
                                      const CpContext& context, int layer, double scale, Phase phase = Phase::kForward);
// The gradients of that forward; for layers that bring their own backward.
AttentionGrads cp_attention_backward(const at::Tensor& dout_thd, const at::Tensor& q_thd, const at::Tensor& k_tgd,
                                     const at::Tensor& v_tgd, const AttentionWithLse& result, const CpContext& context,
                                     int layer, double scale);

}  // namespace ringfold
