// The matrix products of layers and head. Where half-precision factors lie on a GPU they go to cuBLASLt with a choice
// of kernel of our own (cuda/product.cpp); elsewhere they are ATen's.
#pragma once

#include <ATen/core/Tensor.h>

namespace ringfold {

// a (m, k) times b (k, n): each with rows or columns contiguous. `out` (m, n) has contiguous rows.
at::Tensor product(const at::Tensor& a, const at::Tensor& b);
void product_into(const at::Tensor& out, const at::Tensor& a, const at::Tensor& b);
// In fp32 whatever the factors are.
at::Tensor wide_product(const at::Tensor& a, const at::Tensor& b);
// A new tensor: addend + a b, the addend (m, n) in the factors' type.
at::Tensor product_plus(const at::Tensor& addend, const at::Tensor& a, const at::Tensor& b);
// sum += a b, in place. sum fp32 with half-precision factors only on a GPU.
void add_product(const at::Tensor& sum, const at::Tensor& a, const at::Tensor& b);

}  // namespace ringfold
