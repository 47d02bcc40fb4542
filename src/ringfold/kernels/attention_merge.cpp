#include <ATen/ATen.h>

#include <limits>

#include "ringfold/kernels/attention.h"

namespace ringfold {

void merge_attention_(AttentionBlock& accumulated, const AttentionBlock& block) {
  const at::Tensor lse_ht = at::logaddexp(accumulated.lse_ht, block.lse_ht);
  // Rows without any key on either side would give exp(-inf + inf): their weight is 0.
  const at::Tensor empty_ht = lse_ht == -std::numeric_limits<double>::infinity();
  auto weight_th1 = [&](const at::Tensor& part_ht) {
    return (part_ht - lse_ht).exp_().masked_fill_(empty_ht, 0).transpose(0, 1).unsqueeze(-1);
  };
  const at::Tensor block_weight_th1 = weight_th1(block.lse_ht);
  accumulated.out_thd.mul_(weight_th1(accumulated.lse_ht)).addcmul_(block.out_thd.to(accumulated.out_thd.scalar_type()), block_weight_th1);
  accumulated.lse_ht.copy_(lse_ht);
}

}  // namespace ringfold
