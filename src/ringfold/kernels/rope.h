// Rotary position embedding, half-rotation form (Su et al. 2021; first half of the head paired with the second).
// Legend: t tokens, h heads, d head dim.
#pragma once

#include <ATen/core/Tensor.h>

namespace ringfold {

// y = x cos + rotate_half(x) sin, rotate_half((a, b)) = (-b, a). x (t, h, d); cos and sin (t, d), without gradient,
// fp32 where x is of half precision.
at::Tensor apply_rope(const at::Tensor& x_thd, const at::Tensor& cos_td, const at::Tensor& sin_td);

}  // namespace ringfold
