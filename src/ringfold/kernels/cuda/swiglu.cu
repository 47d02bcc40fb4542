#include "ringfold/kernels/cuda/device.cuh"

namespace ringfold::cuda {
namespace {

constexpr int kThreads = 256;

__device__ inline float sigmoid(float x) {
  return 1.0F / (1.0F + __expf(-x));
}

template <typename T>
__global__ __launch_bounds__(kThreads) void ringfold_swiglu(SwiGlu p) {
  const int64_t i = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) * kVector;
  if (i >= p.rows * p.width) return;
  const int64_t row = i / p.width;
  const T* gate = static_cast<const T*>(p.gate_up) + row * p.width + i;
  float g[8], u[8];
  load8(gate, g);
  load8(gate + p.width, u);
#pragma unroll
  for (int e = 0; e < 8; ++e) g[e] = g[e] * sigmoid(g[e]) * u[e];
  store8(static_cast<T*>(p.a) + i, g);
}

template <typename T>
__global__ __launch_bounds__(kThreads) void ringfold_swiglu_backward(SwiGluBackward p) {
  const int64_t i = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) * kVector;
  if (i >= p.rows * p.width) return;
  const int64_t at = i / p.width * p.width + i;
  float g[8], u[8], da[8];
  load8(static_cast<const T*>(p.gate_up) + at, g);
  load8(static_cast<const T*>(p.gate_up) + at + p.width, u);
  load8(static_cast<const T*>(p.da) + i, da);
#pragma unroll
  for (int e = 0; e < 8; ++e) {
    const float s = sigmoid(g[e]), silu = g[e] * s, gradient = da[e];
    da[e] = silu * u[e];
    g[e] = gradient * u[e] * (s + silu * (1.0F - s));
    u[e] = gradient * silu;
  }
  store8(static_cast<T*>(p.a) + i, da);
  store8(static_cast<T*>(p.dgate_up) + at, g);
  store8(static_cast<T*>(p.dgate_up) + at + p.width, u);
}

unsigned blocks_for(int64_t elements) {
  const int64_t each = int64_t{kThreads} * kVector;
  return static_cast<unsigned>((elements + each - 1) / each);
}

}  // namespace

void swiglu_forward(Type type, const SwiGlu& p, cudaStream_t stream) {
  if (p.rows == 0) return;
  by_type(type,
          [&](auto t) { ringfold_swiglu<decltype(t)><<<blocks_for(p.rows * p.width), kThreads, 0, stream>>>(p); });
  check_launch("swiglu");
}

void swiglu_backward(Type type, const SwiGluBackward& p, cudaStream_t stream) {
  if (p.rows == 0) return;
  by_type(type, [&](auto t) {
    ringfold_swiglu_backward<decltype(t)><<<blocks_for(p.rows * p.width), kThreads, 0, stream>>>(p);
  });
  check_launch("swiglu_backward");
}

}  // namespace ringfold::cuda
