// ATen's fused CPU operator, one sequence a call. It wants [batch, heads, tokens, head dim]; strided views will do.
#include <ATen/ATen.h>

#include <limits>

#include "ringfold/kernels/attention.h"

namespace ringfold {
namespace {

// The operator reads any strides but takes the head dim as contiguous without looking.
at::Tensor as_batch(const at::Tensor& x_thd) {
  return (x_thd.stride(2) == 1 ? x_thd : x_thd.contiguous()).transpose(0, 1).unsqueeze(0);
}
at::Tensor from_batch(const at::Tensor& x_bhtd) {
  return x_bhtd.squeeze(0).transpose(0, 1);
}

}  // namespace

AttentionBlock flash_attention_forward(const at::Tensor& q_thd, const at::Tensor& k_sgd, const at::Tensor& v_sgd,
                                       BlockMask mask, double scale) {
  if (q_thd.size(0) == 0 || k_sgd.size(0) == 0) {
    return {at::zeros_like(q_thd),
            at::full({q_thd.size(1), q_thd.size(0)}, -std::numeric_limits<double>::infinity(), q_thd.options())};
  }
  auto [out_bhtd, lse_bht] = at::_scaled_dot_product_flash_attention_for_cpu(
      as_batch(q_thd), as_batch(k_sgd), as_batch(v_sgd), /*dropout_p=*/0.0, mask == BlockMask::kCausal,
      /*attn_mask=*/std::nullopt, scale);
  return {from_batch(out_bhtd), lse_bht.squeeze(0)};
}

AttentionGrads flash_attention_backward(const at::Tensor& dout_thd, const at::Tensor& q_thd, const at::Tensor& k_sgd,
                                        const at::Tensor& v_sgd, const at::Tensor& out_thd, const at::Tensor& lse_ht,
                                        BlockMask mask, double scale) {
  if (q_thd.size(0) == 0 || k_sgd.size(0) == 0) {
    return {at::zeros_like(q_thd), at::zeros_like(k_sgd), at::zeros_like(v_sgd)};
  }
  auto [dq_bhtd, dk_bgsd, dv_bgsd] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
      as_batch(dout_thd), as_batch(q_thd), as_batch(k_sgd), as_batch(v_sgd), as_batch(out_thd), lse_ht.unsqueeze(0),
      /*dropout_p=*/0.0, mask == BlockMask::kCausal, /*attn_mask=*/std::nullopt, scale);
  return {from_batch(dq_bhtd), from_batch(dk_bgsd), from_batch(dv_bgsd)};
}

}  // namespace ringfold
