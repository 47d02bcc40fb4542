// Tensors as the kernels take them (launch.h).
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/cuda/CUDAContext.h>

#include <type_traits>

#include "ringfold/base/error.h"
#include "ringfold/kernels/cuda/launch.h"

namespace ringfold::cuda {

inline cudaStream_t stream_of(const at::Tensor& x) {
  return at::cuda::getCurrentCUDAStream(x.device().index()).stream();
}

inline Type type_of(at::ScalarType type) {
  RINGFOLD_ASSERT(type == at::kFloat || type == at::kBFloat16, "the GPU's own kernels take fp32 and bf16");
  return type == at::kBFloat16 ? Type::kBf16 : Type::kFloat;
}
inline Type type_of(const at::Tensor& x) {
  return type_of(x.scalar_type());
}

// The elements of an input, null where it is undefined.
template <typename T = void>
const T* in(const at::Tensor& x) {
  if (!x.defined()) return nullptr;
  RINGFOLD_ASSERT(x.is_cuda() && x.is_contiguous(), "a kernel's input is contiguous and on the GPU");
  if constexpr (std::is_void_v<T>) {
    return x.const_data_ptr();
  } else {
    return x.const_data_ptr<T>();
  }
}

}  // namespace ringfold::cuda
