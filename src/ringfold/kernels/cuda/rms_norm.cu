// One block a row; a persistent grid for the backward, so that each thread sums the weight's gradient in registers.
#include "ringfold/kernels/cuda/device.cuh"

namespace ringfold::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kPartialRows = 528;  // four blocks on each of the 132 multiprocessors
constexpr int kMaxChunks = 8;      // of kThreads * kVector elements: width up to 16384

template <typename T>
__global__ __launch_bounds__(kThreads) void ringfold_rms_norm(RmsNorm p, bool again) {
  __shared__ float shared[kThreads / 32];
  const int64_t row = blockIdx.x;
  const T* x = static_cast<const T*>(p.x) + row * p.width;
  float inverse_rms = 0;
  if (again) {
    inverse_rms = p.inverse_rms[row];
  } else {
    float squares = 0;
    for (int64_t i = threadIdx.x * kVector; i < p.width; i += kThreads * kVector) {
      float v[8];
      load8(x + i, v);
#pragma unroll
      for (float e : v) squares += e * e;
    }
    squares = block_sum<kThreads>(squares, shared);
    inverse_rms = rsqrtf(squares / static_cast<float>(p.width) + p.eps);
    if (threadIdx.x == 0) p.inverse_rms[row] = inverse_rms;
  }
  // The row is in the cache by now.
  for (int64_t i = threadIdx.x * kVector; i < p.width; i += kThreads * kVector) {
    float v[8], w[8];
    load8(x + i, v);
    load8(static_cast<const T*>(p.weight) + i, w);
#pragma unroll
    for (int e = 0; e < 8; ++e) v[e] *= inverse_rms * w[e];
    store8(static_cast<T*>(p.y) + row * p.width + i, v);
  }
}

// With n = x / rms and g = dy * weight: dx = (g - n * mean(g * n)) / rms; dweight = sum over rows of dy * n.
template <typename T, int kChunks>
__global__ __launch_bounds__(kThreads) void ringfold_rms_norm_backward(RmsNormBackward p) {
  __shared__ float shared[kThreads / 32];
  float dweight[kChunks][8] = {};
  for (int64_t row = blockIdx.x; row < p.rows; row += gridDim.x) {
    const float inverse_rms = p.inverse_rms[row];
    float g[kChunks][8], n[kChunks][8];
    float along = 0;
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
      const int64_t i = (c * kThreads + threadIdx.x) * kVector;
      if (i >= p.width) continue;
      float w[8];
      load8(static_cast<const T*>(p.x) + row * p.width + i, n[c]);
      load8(static_cast<const T*>(p.dy) + row * p.width + i, g[c]);
      load8(static_cast<const T*>(p.weight) + i, w);
#pragma unroll
      for (int e = 0; e < 8; ++e) {
        n[c][e] *= inverse_rms;
        dweight[c][e] += g[c][e] * n[c][e];
        g[c][e] *= w[e];
        along += g[c][e] * n[c][e];
      }
    }
    along = block_sum<kThreads>(along, shared) / static_cast<float>(p.width);
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
      const int64_t i = (c * kThreads + threadIdx.x) * kVector;
      if (i >= p.width) continue;
      float r[8] = {};
      if (p.dresidual != nullptr) load8(static_cast<const T*>(p.dresidual) + row * p.width + i, r);
#pragma unroll
      for (int e = 0; e < 8; ++e) r[e] += (g[c][e] - n[c][e] * along) * inverse_rms;
      store8(static_cast<T*>(p.dx) + row * p.width + i, r);
    }
  }
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
    const int64_t i = (c * kThreads + threadIdx.x) * kVector;
    if (i < p.width) store8(p.dweight_partial + static_cast<int64_t>(blockIdx.x) * p.width + i, dweight[c]);
  }
}

void forward(Type type, const RmsNorm& p, bool again, cudaStream_t stream) {
  if (p.rows == 0) return;
  by_type(type, [&](auto t) {
    ringfold_rms_norm<decltype(t)><<<static_cast<unsigned>(p.rows), kThreads, 0, stream>>>(p, again);
  });
  check_launch("rms_norm");
}

}  // namespace

void rms_norm_forward(Type type, const RmsNorm& p, cudaStream_t stream) {
  forward(type, p, false, stream);
}

void rms_norm_again(Type type, const RmsNorm& p, cudaStream_t stream) {
  forward(type, p, true, stream);
}

int64_t rms_norm_partial_rows() {
  return kPartialRows;
}

void rms_norm_backward(Type type, const RmsNormBackward& p, cudaStream_t stream) {
  const int64_t chunks = (p.width + kThreads * kVector - 1) / (kThreads * kVector);
  by_type(type, [&](auto t) {
    using T = decltype(t);
    if (chunks <= 1) {
      ringfold_rms_norm_backward<T, 1><<<kPartialRows, kThreads, 0, stream>>>(p);
    } else if (chunks <= 2) {
      ringfold_rms_norm_backward<T, 2><<<kPartialRows, kThreads, 0, stream>>>(p);
    } else if (chunks <= 4) {
      ringfold_rms_norm_backward<T, 4><<<kPartialRows, kThreads, 0, stream>>>(p);
    } else {
      ringfold_rms_norm_backward<T, kMaxChunks><<<kPartialRows, kThreads, 0, stream>>>(p);
    }
  });
  check_launch("rms_norm_backward");
}

}  // namespace ringfold::cuda
