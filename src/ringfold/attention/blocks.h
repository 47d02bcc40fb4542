// The work of one rank cut into blocks: rows of queries on rows of keys of one sample, either causal or full. Every
// scheme is a list of blocks and a way to bring the keys. Only real rows appear in a block, so pads are never read.
// Internal to attention/. Legend: t local tokens, s tokens of the KV tensors at hand, h query heads, g KV heads, d head
// dim.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "ringfold/kernels/attention.h"
#include "ringfold/shard/cp_context.h"

namespace ringfold::attention_detail {

struct Rows {
  int64_t begin = 0;
  int64_t count = 0;
};

struct Block {
  Rows q;
  Rows kv;
  BlockMask mask = BlockMask::kFull;
};

// Real rows of a sample on group rank `rank`: both chunks (always adjacent), the first, the second.
Rows real_rows(const SampleShard& sample, int rank, int size);
Rows first_chunk_rows(const SampleShard& sample, int rank);
Rows second_chunk_rows(const SampleShard& sample, int rank, int size);

// The blocks of this rank's queries on the shard of group rank `source`, for all samples of the pack. Zigzag makes them
// equal in work: own shard: causal; an earlier rank: all own rows on its first chunk; a later rank: the own second
// chunk on both of its chunks.
std::vector<Block> blocks_on_shard(const PackLayout& layout, int source);

// What the blocks of one call share.
struct AttentionCall {
  AttentionKernel kernel = AttentionKernel::kFlash;
  double scale = 1;
};

// The inputs and the merged result of the forward, and the gradient of its output.
struct ForwardState {
  at::Tensor q_thd, k_tgd, v_tgd;  // of this rank
  AttentionBlock result;
  at::Tensor dout_thd;
};

// The type in which results and gradients are summed: fp32 for half precision, else the type itself.
at::ScalarType sum_type(const at::Tensor& x);
// A result that no block has touched: out 0, lse -inf, in the sum type.
AttentionBlock empty_result(const at::Tensor& q_thd);

// Adds the blocks to the result. A row's causal block comes before its full ones.
void attend(const AttentionCall& call, const std::vector<Block>& blocks, const at::Tensor& q_thd,
            const at::Tensor& k_sgd, const at::Tensor& v_sgd, AttentionBlock& result);

// The blocks on the shard of group rank `source`, all samples in one kernel call where the kernel can.
void attend_shard(const AttentionCall& call, const CpContext& context, int source, const at::Tensor& q_thd,
                  const at::Tensor& k_tgd, const at::Tensor& v_tgd, AttentionBlock& result);
void attend_shard_backward(const AttentionCall& call, const CpContext& context, int source, const ForwardState& state,
                           const at::Tensor& k_tgd, const at::Tensor& v_tgd, AttentionGrads& grads);

// A group of one: every sample's causal attention. The result has the type of the inputs.
AttentionBlock attend_alone(const AttentionCall& call, const CpContext& context, const at::Tensor& q_thd,
                            const at::Tensor& k_tgd, const at::Tensor& v_tgd);
AttentionGrads attend_alone_backward(const AttentionCall& call, const CpContext& context, const ForwardState& state);

// Adds the gradients of the blocks into dq, dk, dv.
void attend_backward(const AttentionCall& call, const std::vector<Block>& blocks, const ForwardState& state,
                     const at::Tensor& k_sgd, const at::Tensor& v_sgd, AttentionGrads& grads);

}  // namespace ringfold::attention_detail
