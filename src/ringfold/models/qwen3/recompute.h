// Activation recompute of one decoder layer.
#pragma once

#include <ATen/core/Tensor.h>

#include "ringfold/models/qwen3/model.h"

namespace ringfold {

// model.layer_forward without keeping its activations: the backward runs it once more with the same context, so the
// exchanges of the micro-step's own group happen again in the same order on every member. Gradients equal those without
// recompute bit for bit. `model` must outlive the backward.
at::Tensor recomputed_layer(const DenseModel& model, int layer, const at::Tensor& x_th, const at::Tensor& cos_td,
                            const at::Tensor& sin_td, const CpContextPtr& context);

}  // namespace ringfold
