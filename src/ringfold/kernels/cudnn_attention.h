// cuDNN's fused attention on packed tensors; a twin file stands in where the program is built without it. Internal to
// kernels/: callers use varlen_attention.h.
#pragma once

#include "ringfold/kernels/varlen_attention.h"

namespace ringfold {

bool cudnn_has_attention(at::Device device, const HeadShape& shape);
AttentionBlock cudnn_attention_forward(const VarlenBlocks& blocks, const at::Tensor& q_thd, const at::Tensor& k_sgd,
                                       const at::Tensor& v_sgd, double scale);
AttentionGrads cudnn_attention_backward(const VarlenBlocks& blocks, const at::Tensor& dout_thd, const at::Tensor& q_thd,
                                        const at::Tensor& k_sgd, const at::Tensor& v_sgd, const at::Tensor& out_thd,
                                        const at::Tensor& lse_ht, double scale);

}  // namespace ringfold
