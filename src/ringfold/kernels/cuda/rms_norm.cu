// One block a row; a persistent grid for the backward, so that each thread sums the weight's gradient in registers.
#include "ringfold/kernels/cuda/device.cuh"

namespace ringfold::cuda {
namespace {

constexpr int kMaxThreads = 512;
constexpr int kPartialRows = 396;  // blocks of the backward: three on each of the 132 multiprocessors
constexpr int kMaxChunks = 4;      // vectors a thread holds: width up to 16384

// Threads for one row: as few as hold it in `chunks` vectors each.
unsigned threads_for(int64_t width, int chunks) {
  const int64_t vectors = (width + kVector - 1) / kVector;
  return static_cast<unsigned>(((vectors + chunks - 1) / chunks + 31) / 32 * 32);
}

int chunks_for(int64_t width) {
  int chunks = 1;
  while (width > int64_t{chunks} * kMaxThreads * kVector) chunks *= 2;
  return chunks;
}

template <typename T, int kChunks>
__global__ __launch_bounds__(kMaxThreads) void ringfold_rms_norm(RmsNorm p) {
  __shared__ float shared[kMaxThreads / 32];
  const int64_t row = blockIdx.x;
  const T* from = static_cast<const T*>(p.x) + row * p.width;
  float x[kChunks][8];
  float squares = 0;
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
    const int64_t i = (c * blockDim.x + threadIdx.x) * kVector;
    if (i >= p.width) continue;
    load8(from + i, x[c]);
#pragma unroll
    for (float e : x[c]) squares += e * e;
  }
  const float inverse_rms = rsqrtf(block_sum(squares, shared) / static_cast<float>(p.width) + p.eps);
  if (threadIdx.x == 0) p.inverse_rms[row] = inverse_rms;
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
    const int64_t i = (c * blockDim.x + threadIdx.x) * kVector;
    if (i >= p.width) continue;
    float w[8];
    load8(static_cast<const T*>(p.weight) + i, w);
#pragma unroll
    for (int e = 0; e < 8; ++e) x[c][e] *= inverse_rms * w[e];
    store8(static_cast<T*>(p.y) + row * p.width + i, x[c]);
  }
}

// With n = x / rms and g = dy * weight: dx = (g - n * mean(g * n)) / rms; dweight = sum over rows of dy * n.
template <typename T, int kChunks>
__global__ __launch_bounds__(kMaxThreads) void ringfold_rms_norm_backward(RmsNormBackward p) {
  __shared__ float shared[kMaxThreads / 32];
  float dweight[kChunks][8] = {};
  for (int64_t row = blockIdx.x; row < p.rows; row += gridDim.x) {
    const float inverse_rms = p.inverse_rms[row];
    float g[kChunks][8], n[kChunks][8], r[kChunks][8] = {};
    float along = 0;
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
      const int64_t i = (c * blockDim.x + threadIdx.x) * kVector;
      if (i >= p.width) continue;
      float w[8];
      load8(static_cast<const T*>(p.x) + row * p.width + i, n[c]);
      load8(static_cast<const T*>(p.dy) + row * p.width + i, g[c]);
      if (p.dresidual != nullptr) load8(static_cast<const T*>(p.dresidual) + row * p.width + i, r[c]);
      load8(static_cast<const T*>(p.weight) + i, w);
      float y[8];
#pragma unroll
      for (int e = 0; e < 8; ++e) {
        n[c][e] *= inverse_rms;
        y[e] = n[c][e] * w[e];
        dweight[c][e] += g[c][e] * n[c][e];
        g[c][e] *= w[e];
        along += g[c][e] * n[c][e];
      }
      if (p.y != nullptr) store8(static_cast<T*>(p.y) + row * p.width + i, y);
    }
    along = block_sum(along, shared) / static_cast<float>(p.width);
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
      const int64_t i = (c * blockDim.x + threadIdx.x) * kVector;
      if (i >= p.width) continue;
#pragma unroll
      for (int e = 0; e < 8; ++e) r[c][e] += (g[c][e] - n[c][e] * along) * inverse_rms;
      store8(static_cast<T*>(p.dx) + row * p.width + i, r[c]);
    }
  }
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
    const int64_t i = (c * blockDim.x + threadIdx.x) * kVector;
    if (i < p.width) store8(p.dweight_partial + static_cast<int64_t>(blockIdx.x) * p.width + i, dweight[c]);
  }
}

constexpr int kSumRows = 16;  // threads that share a column

__global__ __launch_bounds__(32 * kSumRows) void ringfold_add_column_sums(ColumnSums p) {
  __shared__ float shared[kSumRows][32];
  const int64_t column = static_cast<int64_t>(blockIdx.x) * 32 + threadIdx.x;
  float sum = 0;
  if (column < p.width) {
    for (int64_t row = threadIdx.y; row < p.rows; row += kSumRows) sum += p.partial[row * p.width + column];
  }
  shared[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || column >= p.width) return;
  float total = 0;
#pragma unroll
  for (int i = 0; i < kSumRows; ++i) total += shared[i][threadIdx.x];
  p.into[column] += total;
}

// Calls call(T, chunks), both as values that the compiler knows.
template <typename Call>
void by_type_and_chunks(Type type, int64_t width, Call call) {
  by_type(type, [&](auto t) {
    switch (chunks_for(width)) {
      case 1:
        return call(t, std::integral_constant<int, 1>{});
      case 2:
        return call(t, std::integral_constant<int, 2>{});
      case kMaxChunks:
        return call(t, std::integral_constant<int, kMaxChunks>{});
      default:
        throw std::runtime_error("CUDA: rms_norm: a row is longer than 16384");
    }
  });
}

}  // namespace

void rms_norm_forward(Type type, const RmsNorm& p, cudaStream_t stream) {
  if (p.rows == 0) return;
  by_type_and_chunks(type, p.width, [&](auto t, auto chunks) {
    constexpr int kChunks = decltype(chunks)::value;
    ringfold_rms_norm<decltype(t), kChunks>
        <<<static_cast<unsigned>(p.rows), threads_for(p.width, kChunks), 0, stream>>>(p);
  });
  check_launch("rms_norm");
}

int64_t rms_norm_partial_rows() {
  return kPartialRows;
}

void rms_norm_backward(Type type, const RmsNormBackward& p, cudaStream_t stream) {
  by_type_and_chunks(type, p.width, [&](auto t, auto chunks) {
    constexpr int kChunks = decltype(chunks)::value;
    ringfold_rms_norm_backward<decltype(t), kChunks><<<kPartialRows, threads_for(p.width, kChunks), 0, stream>>>(p);
  });
  check_launch("rms_norm_backward");
}

void add_column_sums(const ColumnSums& p, cudaStream_t stream) {
  ringfold_add_column_sums<<<static_cast<unsigned>((p.width + 31) / 32), dim3(32, kSumRows), 0, stream>>>(p);
  check_launch("add_column_sums");
}

}  // namespace ringfold::cuda
