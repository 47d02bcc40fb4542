#include <ATen/ATen.h>

#include <limits>

#include "ringfold/kernels/attention.h"
#include "ringfold/kernels/fused.h"

namespace ringfold {
namespace {

// The GPU's kernel wants rows of whole 16-byte pieces and log-sum-exps that are token-major in memory.
bool has_fused_merge(const AttentionBlock& accumulated, const AttentionBlock& block) {
  const int64_t head_dim = accumulated.out_thd.size(2);
  return accumulated.out_thd.is_cuda() && accumulated.out_thd.scalar_type() == at::kFloat &&
         block.lse_ht.scalar_type() == at::kFloat && (head_dim == 64 || head_dim == 128 || head_dim == 256) &&
         accumulated.out_thd.is_contiguous() && block.out_thd.is_contiguous() &&
         accumulated.lse_ht.t().is_contiguous() && block.lse_ht.t().is_contiguous();
}

}  // namespace

void merge_attention_(AttentionBlock& accumulated, const AttentionBlock& block) {
  if (has_fused_merge(accumulated, block)) return fused::merge_attention(accumulated, block);
  const at::Tensor lse_ht = at::logaddexp(accumulated.lse_ht, block.lse_ht);
  // Rows without any key on either side would give exp(-inf + inf): their weight is 0.
  const at::Tensor empty_ht = lse_ht == -std::numeric_limits<double>::infinity();
  auto weight_th1 = [&](const at::Tensor& part_ht) {
    return (part_ht - lse_ht).exp_().masked_fill_(empty_ht, 0).transpose(0, 1).unsqueeze(-1);
  };
  const at::Tensor block_weight_th1 = weight_th1(block.lse_ht);
  accumulated.out_thd.mul_(weight_th1(accumulated.lse_ht))
      .addcmul_(block.out_thd.to(accumulated.out_thd.scalar_type()), block_weight_th1);
  accumulated.lse_ht.copy_(lse_ht);
}

}  // namespace ringfold
