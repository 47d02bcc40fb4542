#include "ringfold/attention/varlen.h"

#include <ATen/ATen.h>

#include "ringfold/base/error.h"
#include "ringfold/kernels/varlen_attention.h"

namespace ringfold::attention_detail {
namespace {

using BlocksPtr = std::shared_ptr<const VarlenBlocks>;

VarlenKernel kernel_of(const AttentionCall& call) {
  return call.kernel == AttentionKernel::kCudnn ? VarlenKernel::kCudnn : VarlenKernel::kFlash;
}

BlocksPtr make_varlen(const std::vector<Block>& blocks, BlockMask mask, const at::Tensor& q_thd,
                      const at::Tensor& k_sgd) {
  std::vector<BlockRows> rows;
  for (const Block& block : blocks) {
    if (block.mask == mask) rows.push_back({block.q.begin, block.q.count, block.kv.begin, block.kv.count});
  }
  return std::make_shared<VarlenBlocks>(mask, rows, HeadShape{q_thd.size(1), k_sgd.size(1), q_thd.size(2)},
                                        q_thd.device());
}

at::Tensor rows_of(const at::Tensor& x_thd, Rows rows) {
  return x_thd.narrow(0, rows.begin, rows.count);
}

// A block whose rows have been cut out already.
BlocksPtr alone(const Block& block, const at::Tensor& q_thd, const at::Tensor& k_sgd) {
  return make_varlen({{{0, block.q.count}, {0, block.kv.count}, block.mask}}, block.mask, q_thd, k_sgd);
}

// Zigzag gives the blocks on one shard one mask: causal on the own, full on the others.
const VarlenBlocks& blocks_of(const CpContext& context, int source, const at::Tensor& q_thd, const at::Tensor& k_tgd) {
  BlocksPtr& kept = context.varlen_blocks[source];
  if (!kept) {
    const BlockMask mask = source == context.layout.index() ? BlockMask::kCausal : BlockMask::kFull;
    kept = make_varlen(blocks_on_shard(context.layout, source), mask, q_thd, k_tgd);
  }
  return *kept;
}

void attend_blocks(const AttentionCall& call, const VarlenBlocks& blocks, const at::Tensor& q_thd,
                   const at::Tensor& k_sgd, const at::Tensor& v_sgd, AttentionBlock& result) {
  if (blocks.rows.empty()) return;
  const AttentionBlock part = varlen_attention_forward(kernel_of(call), blocks, q_thd, k_sgd, v_sgd, call.scale);
  if (blocks.mask == BlockMask::kCausal) {
    result.out_thd.copy_(part.out_thd);
    result.lse_ht.copy_(part.lse_ht);
  } else {
    merge_attention_(result, part);
  }
}

void attend_blocks_backward(const AttentionCall& call, const VarlenBlocks& blocks, const ForwardState& state,
                            const at::Tensor& k_sgd, const at::Tensor& v_sgd, AttentionGrads& grads) {
  if (blocks.rows.empty()) return;
  const AttentionGrads part = varlen_attention_backward(kernel_of(call), blocks, state.dout_thd, state.q_thd, k_sgd,
                                                        v_sgd, state.result.out_thd, state.result.lse_ht, call.scale);
  grads.dq_thd.add_(part.dq_thd);
  grads.dk_sgd.add_(part.dk_sgd);
  grads.dv_sgd.add_(part.dv_sgd);
}

}  // namespace

bool uses_varlen(const AttentionCall& call, const at::Tensor& q_thd) {
  return q_thd.is_cuda() && call.kernel != AttentionKernel::kReference;
}

void attend_varlen(const AttentionCall& call, const std::vector<Block>& blocks, const at::Tensor& q_thd,
                   const at::Tensor& k_sgd, const at::Tensor& v_sgd, AttentionBlock& result) {
  // Two chunks of one sample share keys, and a call must not write a key's gradient twice: a block a call.
  for (const Block& block : blocks) {
    const at::Tensor q = rows_of(q_thd, block.q), k = rows_of(k_sgd, block.kv), v = rows_of(v_sgd, block.kv);
    AttentionBlock target{rows_of(result.out_thd, block.q), result.lse_ht.narrow(1, block.q.begin, block.q.count)};
    merge_attention_(target, varlen_attention_forward(kernel_of(call), *alone(block, q, k), q, k, v, call.scale));
  }
}

void attend_varlen_backward(const AttentionCall& call, const std::vector<Block>& blocks, const ForwardState& state,
                            const at::Tensor& k_sgd, const at::Tensor& v_sgd, AttentionGrads& grads) {
  for (const Block& block : blocks) {
    const at::Tensor k = rows_of(k_sgd, block.kv), v = rows_of(v_sgd, block.kv);
    ForwardState part = state;
    part.q_thd = rows_of(state.q_thd, block.q);
    part.dout_thd = rows_of(state.dout_thd, block.q);
    part.result = {rows_of(state.result.out_thd, block.q), state.result.lse_ht.narrow(1, block.q.begin, block.q.count)};
    AttentionGrads target{rows_of(grads.dq_thd, block.q), rows_of(grads.dk_sgd, block.kv),
                          rows_of(grads.dv_sgd, block.kv)};
    attend_blocks_backward(call, *alone(block, part.q_thd, k), part, k, v, target);
  }
}

void attend_shard(const AttentionCall& call, const CpContext& context, int source, const at::Tensor& q_thd,
                  const at::Tensor& k_tgd, const at::Tensor& v_tgd, AttentionBlock& result) {
  if (!uses_varlen(call, q_thd)) {
    return attend(call, blocks_on_shard(context.layout, source), q_thd, k_tgd, v_tgd, result);
  }
  attend_blocks(call, blocks_of(context, source, q_thd, k_tgd), q_thd, k_tgd, v_tgd, result);
}

void attend_shard_backward(const AttentionCall& call, const CpContext& context, int source, const ForwardState& state,
                           const at::Tensor& k_tgd, const at::Tensor& v_tgd, AttentionGrads& grads) {
  if (!uses_varlen(call, state.q_thd)) {
    return attend_backward(call, blocks_on_shard(context.layout, source), state, k_tgd, v_tgd, grads);
  }
  attend_blocks_backward(call, blocks_of(context, source, state.q_thd, k_tgd), state, k_tgd, v_tgd, grads);
}

AttentionBlock attend_alone(const AttentionCall& call, const CpContext& context, const at::Tensor& q_thd,
                            const at::Tensor& k_tgd, const at::Tensor& v_tgd) {
  if (!uses_varlen(call, q_thd)) {
    AttentionBlock result = empty_result(q_thd);
    attend(call, blocks_on_shard(context.layout, 0), q_thd, k_tgd, v_tgd, result);
    return result;
  }
  return varlen_attention_forward(kernel_of(call), blocks_of(context, 0, q_thd, k_tgd), q_thd, k_tgd, v_tgd,
                                  call.scale);
}

AttentionGrads attend_alone_backward(const AttentionCall& call, const CpContext& context, const ForwardState& state) {
  if (!uses_varlen(call, state.q_thd)) {
    AttentionGrads grads{at::zeros(state.q_thd.sizes(), state.q_thd.options()),
                         at::zeros(state.k_tgd.sizes(), state.k_tgd.options()),
                         at::zeros(state.v_tgd.sizes(), state.v_tgd.options())};
    attend_backward(call, blocks_on_shard(context.layout, 0), state, state.k_tgd, state.v_tgd, grads);
    return grads;
  }
  return varlen_attention_backward(kernel_of(call), blocks_of(context, 0, state.q_thd, state.k_tgd), state.dout_thd,
                                   state.q_thd, state.k_tgd, state.v_tgd, state.result.out_thd, state.result.lse_ht,
                                   call.scale);
}

}  // namespace ringfold::attention_detail
