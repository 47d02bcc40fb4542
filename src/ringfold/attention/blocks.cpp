#include "ringfold/attention/blocks.h"

#include <ATen/ATen.h>
#include <ATen/OpMathType.h>

#include <limits>

#include "ringfold/attention/varlen.h"

namespace ringfold::attention_detail {
namespace {

at::Tensor rows_of(const at::Tensor& x_thd, Rows rows) {
  return x_thd.narrow(0, rows.begin, rows.count);
}

AttentionBlock rows_of(const AttentionBlock& result, Rows rows) {
  return {result.out_thd.narrow(0, rows.begin, rows.count), result.lse_ht.narrow(1, rows.begin, rows.count)};
}

}  // namespace

Rows real_rows(const SampleShard& sample, int rank, int size) {
  return {sample.local_begin, first_chunk_rows(sample, rank).count + second_chunk_rows(sample, rank, size).count};
}

Rows first_chunk_rows(const SampleShard& sample, int rank) {
  return {sample.local_begin, sample.real_in_chunk(PackLayout::first_chunk(rank))};
}

Rows second_chunk_rows(const SampleShard& sample, int rank, int size) {
  return {sample.local_begin + sample.chunk_tokens, sample.real_in_chunk(PackLayout::second_chunk(rank, size))};
}

std::vector<Block> blocks_on_shard(const PackLayout& layout, int source) {
  const int rank = layout.index(), size = layout.size();
  std::vector<Block> blocks;
  for (const SampleShard& sample : layout.samples()) {
    Block block;
    if (source == rank) {
      block = {real_rows(sample, rank, size), real_rows(sample, rank, size), BlockMask::kCausal};
    } else if (source < rank) {
      block = {real_rows(sample, rank, size), first_chunk_rows(sample, source), BlockMask::kFull};
    } else {
      block = {second_chunk_rows(sample, rank, size), real_rows(sample, source, size), BlockMask::kFull};
    }
    if (block.q.count > 0) blocks.push_back(block);
  }
  return blocks;
}

at::ScalarType sum_type(const at::Tensor& x) {
  return at::toOpMathType(x.scalar_type());
}

AttentionBlock empty_result(const at::Tensor& q_thd) {
  const auto options = q_thd.options().dtype(sum_type(q_thd));
  const double nothing = -std::numeric_limits<double>::infinity();
  // The GPU's kernels want log-sum-exps token-major in memory.
  const at::Tensor lse_ht = q_thd.is_cuda() ? at::full({q_thd.size(0), q_thd.size(1)}, nothing, options).t()
                                            : at::full({q_thd.size(1), q_thd.size(0)}, nothing, options);
  return {at::zeros(q_thd.sizes(), options), lse_ht};
}

void attend(const AttentionCall& call, const std::vector<Block>& blocks, const at::Tensor& q_thd,
            const at::Tensor& k_sgd, const at::Tensor& v_sgd, AttentionBlock& result) {
  if (uses_varlen(call, q_thd)) return attend_varlen(call, blocks, q_thd, k_sgd, v_sgd, result);
  const auto forward = call.kernel == AttentionKernel::kFlash ? flash_attention_forward : reference_attention_forward;
  for (const Block& block : blocks) {
    const AttentionBlock part =
        forward(rows_of(q_thd, block.q), rows_of(k_sgd, block.kv), rows_of(v_sgd, block.kv), block.mask, call.scale);
    AttentionBlock target = rows_of(result, block.q);
    if (block.mask == BlockMask::kCausal) {
      target.out_thd.copy_(part.out_thd);
      target.lse_ht.copy_(part.lse_ht);
    } else {
      merge_attention_(target, part);
    }
  }
}

void attend_backward(const AttentionCall& call, const std::vector<Block>& blocks, const ForwardState& state,
                     const at::Tensor& k_sgd, const at::Tensor& v_sgd, AttentionGrads& grads) {
  if (uses_varlen(call, state.q_thd)) return attend_varlen_backward(call, blocks, state, k_sgd, v_sgd, grads);
  const auto backward =
      call.kernel == AttentionKernel::kFlash ? flash_attention_backward : reference_attention_backward;
  for (const Block& block : blocks) {
    const AttentionBlock merged = rows_of(state.result, block.q);
    const AttentionGrads part =
        backward(rows_of(state.dout_thd, block.q), rows_of(state.q_thd, block.q), rows_of(k_sgd, block.kv),
                 rows_of(v_sgd, block.kv), merged.out_thd, merged.lse_ht, block.mask, call.scale);
    rows_of(grads.dq_thd, block.q).add_(part.dq_thd);
    rows_of(grads.dk_sgd, block.kv).add_(part.dk_sgd);
    rows_of(grads.dv_sgd, block.kv).add_(part.dv_sgd);
  }
}

}  // namespace ringfold::attention_detail
