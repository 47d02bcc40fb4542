// Root-mean-square normalisation over the last dim (Zhang and Sennrich 2019).
#pragma once

#include <ATen/core/Tensor.h>

namespace ringfold {

// y = weight * x / sqrt(mean(x^2) + eps). x (..., d), weight (d), of one type; half precision is computed in fp32.
// Differentiable; keeps x and one number a row for the backward. A row of zeros gives zeros.
at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight_d, double eps);

}  // namespace ringfold
