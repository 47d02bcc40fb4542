#include "ringfold/kernels/cuda/device.cuh"

namespace ringfold::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kEach = 4;

template <typename T>
__device__ inline void update(const AdamW& p, int64_t i) {
  const float g = p.gradient[i] * p.gradient_scale;
  const float m = p.first_moment[i] + (1.0F - p.beta1) * (g - p.first_moment[i]);
  const float v = p.beta2 * p.second_moment[i] + (1.0F - p.beta2) * g * g;
  const float denominator = sqrtf(v) * p.inverse_root_correction2 + p.eps;
  const float master = p.master[i] * p.weight_decay_factor - p.step_size * m / denominator;
  p.first_moment[i] = m;
  p.second_moment[i] = v;
  p.master[i] = master;
  if (p.weight != nullptr) static_cast<T*>(p.weight)[i] = from_float<T>(master);
}

// Neighbouring threads take neighbouring elements; each has several independent ones in flight.
template <typename T>
__global__ __launch_bounds__(kThreads) void ringfold_adamw(AdamW p) {
  const int64_t begin = static_cast<int64_t>(blockIdx.x) * kThreads * kEach + threadIdx.x;
#pragma unroll
  for (int e = 0; e < kEach; ++e) {
    const int64_t i = begin + int64_t{e} * kThreads;
    if (i < p.count) update<T>(p, i);
  }
}

}  // namespace

void adamw(Type type, const AdamW& p, cudaStream_t stream) {
  if (p.count == 0) return;
  const int64_t each = int64_t{kThreads} * kEach;
  const auto blocks = static_cast<unsigned>((p.count + each - 1) / each);
  by_type(type, [&](auto t) { ringfold_adamw<decltype(t)><<<blocks, kThreads, 0, stream>>>(p); });
  check_launch("adamw");
}

}  // namespace ringfold::cuda
