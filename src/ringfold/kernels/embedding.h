// Rows of an embedding table.
#pragma once

#include <ATen/core/Tensor.h>

namespace ringfold {

// weight (v, h) at ids (t) in [0, v) -> (t, h). Where weight.grad() exists in a wider type than weight, the backward
// adds straight into it; otherwise autograd gets a gradient of the whole table.
at::Tensor embedding_rows(const at::Tensor& weight_vh, const at::Tensor& ids_t);

}  // namespace ringfold
