// Matrix products added into a sum that may be wider than their factors.
#pragma once

#include <ATen/core/Tensor.h>

namespace ringfold {

// sum += a b, in place. sum fp32 with half-precision factors only on a GPU.
void add_product(const at::Tensor& sum, const at::Tensor& a, const at::Tensor& b);

}  // namespace ringfold
