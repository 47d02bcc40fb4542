// Causal self-attention of a pack under context parallelism: each sample sees only itself, whatever the group size.
// Schemes: ring (KV as one flat buffer travels round, partial results merged by log-sum-exp, dKV travels home) and
// all-gather-KV. Steps and bytes of each: docs/algorithms.md.
#pragma once

#include <ATen/core/Tensor.h>

#include "ringfold/shard/cp_context.h"

namespace ringfold {

// q (local tokens, h, d), k and v (local tokens, g, d) in the context's local row order; returns (local tokens, h, d).
// Differentiable; the autograd node keeps the context. Rows of pads produce finite values that nothing may read.
// `recompute` marks a second forward inside a backward (the exchange key says so).
at::Tensor cp_attention(const at::Tensor& q_thd, const at::Tensor& k_tgd, const at::Tensor& v_tgd,
                        const CpContextPtr& context, int layer, double scale);

// Forward with its log-sum-exp (h, local tokens), without autograd; for tests and inspection.
struct AttentionWithLse {
  at::Tensor out_thd;
  at::Tensor lse_ht;
};
AttentionWithLse cp_attention_forward(const at::Tensor& q_thd, const at::Tensor& k_tgd, const at::Tensor& v_tgd,
                                      const CpContext& context, int layer, double scale);

}  // namespace ringfold
