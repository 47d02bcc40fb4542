// Attention of one block of queries on one block of keys of ONE sequence, with its log-sum-exp, so that blocks can be
// merged exactly. fp32 and fp64; the fused operator on the CPU only (on a GPU: varlen_attention.h).
// Legend: t query tokens, s key tokens, h query heads, g KV heads (h a multiple of g: query head i reads KV head
// i / (h / g)), d head dim. lse: natural logarithm.
#pragma once

#include <ATen/core/Tensor.h>

namespace ringfold {

enum class BlockMask {
  kFull,    // every query sees every key
  kCausal,  // query i sees keys 0..i (needs t == s)
};

struct AttentionBlock {
  at::Tensor out_thd;
  at::Tensor lse_ht;
};

struct AttentionGrads {
  at::Tensor dq_thd;
  at::Tensor dk_sgd;
  at::Tensor dv_sgd;
};

// Plain operations, the definition: softmax(scale * q k^T + mask) v.
AttentionBlock reference_attention_forward(const at::Tensor& q_thd, const at::Tensor& k_sgd, const at::Tensor& v_sgd,
                                           BlockMask mask, double scale);
AttentionGrads reference_attention_backward(const at::Tensor& dout_thd, const at::Tensor& q_thd,
                                            const at::Tensor& k_sgd, const at::Tensor& v_sgd, const at::Tensor& out_thd,
                                            const at::Tensor& lse_ht, BlockMask mask, double scale);
// The same through ATen's fused CPU operator.
AttentionBlock flash_attention_forward(const at::Tensor& q_thd, const at::Tensor& k_sgd, const at::Tensor& v_sgd,
                                       BlockMask mask, double scale);
// Backward of one block given the MERGED output and log-sum-exp of all blocks (FlashAttention-2, section 3.1.2):
// the block gradients of one query sum up to the exact ones.
AttentionGrads flash_attention_backward(const at::Tensor& dout_thd, const at::Tensor& q_thd, const at::Tensor& k_sgd,
                                        const at::Tensor& v_sgd, const at::Tensor& out_thd, const at::Tensor& lse_ht,
                                        BlockMask mask, double scale);

// Merges a block into an accumulated result in place: out = sum of exp(lse_i - lse) out_i, lse = log sum exp(lse_i).
// An empty accumulator has lse = -inf; two empty blocks stay empty (no NaN). The accumulator may have the wider type.
void merge_attention_(AttentionBlock& accumulated, const AttentionBlock& block);

}  // namespace ringfold
