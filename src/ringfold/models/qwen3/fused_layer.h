// One decoder layer on a GPU with forward and backward written by hand over the fused kernels. The backward needs
// little: of a layer it keeps the residual stream (twice), the qkv and gate-up products and the attention's result, and
// computes norms, rotations and the activation again (selective recompute); with full recompute only its input.
// Gradients of the weights go straight into their .grad, which must exist (FlatParameters), also where that has a wider
// type.
#pragma once

#include <ATen/core/Tensor.h>

#include <initializer_list>

#include "ringfold/models/qwen3/model.h"

namespace ringfold {

// Whether the model's layers can run so: on a GPU, fp32 or bf16, no biases, projections that lie side by side.
bool has_fused_layers(const DenseModel& model);

// Matrices that lie side by side, as one of all their rows: one product serves all. Of the layers that
// has_fused_layers() speaks of: q, k, v; gate, up.
at::Tensor joined_rows(std::initializer_list<at::Tensor> parts);

at::Tensor fused_layer(const DenseModel& model, int layer, const at::Tensor& x_th, const at::Tensor& cos_td,
                       const at::Tensor& sin_td, const CpContextPtr& context, bool recompute_all);

}  // namespace ringfold
